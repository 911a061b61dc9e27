"""`stoker top`: the queue in the terminal, live."""

from __future__ import annotations

import os

from stoker.cli.open_queue import open_queue
from stoker.errors import UsageError
from stoker.text.command_line import Parsed, Verb

VERB = Verb(
    "top",
    "top [JOB...]",
    "Show GPUs, running, waiting and finished jobs, the log of the selected job and the curves of"
    " sweeps, live in the terminal. JOB lists only the selected jobs, as in `stoker ls`.",
    (),
    (
        ("stoker top", ""),
        ("stoker top failed", "list failed jobs"),
        ("stoker --host box top", "the jobs of another machine"),
    ),
    """Keys: arrows select a job, Enter shows it, c cancels it, h holds or releases it, r reruns it,
+ and - change its priority, / filters, 1 2 3 show jobs, GPUs and sweeps, ? shows all keys, q quits.
Needs the extra `top`: pip install 'stoker[top]'.""",
    words="jobs",
    has_json=False,
)


def run(parsed: Parsed) -> int:
    if not all(map(os.isatty, (0, 1, 2))) or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError(
            "`stoker top` needs a terminal for input and output", "without one: stoker status"
        )
    from stoker.features.results.optional_imports import load

    load("textual", "top")
    settings = open_queue().settings  # reports an unusable queue before the screen is cleared
    from stoker.features.top.app import run_top

    return run_top(settings, " ".join(parsed.words))
