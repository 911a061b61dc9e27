"""`stoker attach`: return to an interactive job."""

from __future__ import annotations

from stoker.cli.open_queue import open_queue
from stoker.engine.store import job_queries
from stoker.errors import UsageError
from stoker.features.terminal.start import attach, check_terminal, newest_interactive
from stoker.text.command_line import Parsed, Verb

VERB = Verb(
    "attach",
    "attach [JOB]",
    "Attach this terminal to a job of `stoker shell` or `stoker run -it` (default: the newest).",
    (),
    (("stoker attach", ""), ("stoker attach 7", "")),
    "A terminal that was attached before is detached.",
    words="jobs",
    has_json=False,
)


def run(parsed: Parsed) -> int:
    check_terminal()
    queue = open_queue()
    ids = queue.select(parsed.words) if parsed.words else [newest_interactive(queue)]
    if len(ids) != 1:
        raise UsageError(
            f"`stoker attach` takes one job, but {len(ids)} are selected",
            "example: stoker attach 7",
        )
    return attach(queue, job_queries.job(queue.db, ids[0]))
