"""Print the diff of a job's code: `stoker show 7 --diff`."""

from __future__ import annotations

import sys

from stoker.cli.output import notice, print_json, wants_color
from stoker.client.queue import Queue
from stoker.engine.store.job_queries import JobRow
from stoker.features.code.views import diff_of_job
from stoker.text.terminal import printable

_RED, _GREEN, _CYAN, _BOLD, _RESET = (f"\x1b[{n}m" for n in (31, 32, 36, 1, 0))


def print_diffs(queue: Queue, rows: list[JobRow], *, as_json: bool) -> int:
    """Print the diffs of jobs; a job without one is explained on stderr.

    On a terminal, lines are colored and control characters are escaped. In a file or a pipe, the
    diff is as git printed it, so that `git apply` reads it.
    """
    diffs = [(row.id, *diff_of_job(queue.db, row.id)) for row in rows]
    if as_json:
        print_json(
            diffs=[
                {
                    "job": job,
                    "diff": None if why else diff.decode("utf-8", "replace"),
                    "problem": why,
                }
                for job, diff, why in diffs
            ]
        )
        return 0
    for _, diff, why in diffs:
        if why is not None:
            notice(why)
        elif sys.stdout.isatty():
            lines = diff.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
            has_color = wants_color()
            print("\n".join(shown_line(line, has_color) for line in lines))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(diff)
    return 0


def shown_line(line: str, has_color: bool) -> str:
    """A line of a diff for a terminal."""
    text = "\t".join(map(printable, line.split("\t")))
    if not has_color:
        return text
    if line.startswith(("diff ", "index ", "--- ", "+++ ", "new ", "deleted ", "old ")):
        return f"{_BOLD}{text}{_RESET}"
    if line.startswith("@@"):
        return f"{_CYAN}{text}{_RESET}"
    if line.startswith("+"):
        return f"{_GREEN}{text}{_RESET}"
    return f"{_RED}{text}{_RESET}" if line.startswith("-") else text
