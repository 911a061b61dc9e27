"""Words for shell completion that depend on the queue: ids and names of jobs, sweeps, contexts."""

from __future__ import annotations

from stoker.cli.open_queue import open_queue
from stoker.core.formats.terminal import printable
from stoker.core.states import STATES
from stoker.store import job_queries, sweeps

_NEWEST = 50


def print_own_words(words: list[str]) -> int:
    """Print one word per line for a command that takes `jobs`, `sweeps` or `contexts`."""
    if words == ["contexts"]:
        from stoker.remote.boxes import LOCAL, saved_boxes

        print("\n".join([LOCAL, *saved_boxes()]))
        return 0
    queue = open_queue()
    found: dict[str, None] = {}
    if words == ["jobs"]:
        rows = job_queries.jobs_in_states(queue.db, STATES, _NEWEST, newest_first=True)
        found.update(dict.fromkeys(str(row.id) for row in rows))
        found.update(dict.fromkeys(row.name for row in rows if row.name))
    found.update(dict.fromkeys(row.name for row in sweeps.all_sweeps(queue.db)[-_NEWEST:]))
    for word in found:
        if word.isprintable() and " " not in word:
            print(printable(word))
    return 0
