"""The keys of `stoker top`: for its help and docs/top.md."""

from __future__ import annotations

from rich.text import Text

KEYS = (
    ("Up Down, k j", "move the cursor, or scroll the log"),
    ("PgUp PgDn Home End", "move by a page, or to the first and last line"),
    ("Tab", "go from the list to the log and back"),
    ("Enter", "show a job with its log and a curve; on a sweep: list its jobs"),
    ("Esc", "go back, or end the filter"),
    ("1 2 3", "show jobs, GPUs or sweeps"),
    ("c", "cancel the job; asks first"),
    ("h", "hold a waiting job, or release a held one"),
    ("r", "rerun a finished job"),
    ("+ -", "raise or lower the priority of a waiting job by 1"),
    ("m", "show the curve of the next metric"),
    ("/", "filter: list the jobs that match"),
    ("a", "list all jobs, the newest first"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "suspend `stoker top`; `fg` continues it"),
    ("?", "show this help"),
    ("q, Ctrl-C", "quit; jobs go on"),
)

# The filter, in words; `stoker help selectors` has the rest.
FILTER_EXAMPLES = (
    ("7 or 3-9", "jobs by id"),
    ("failed", "jobs in a state; also waiting, active, final, all"),
    ("tag:x name:y sweep:z", "jobs with a tag or name, or of a sweep"),
    ("lr=0.1", "other words: a tag, a name, or a part of a command"),
)


def help_text() -> Text:
    text = Text.assemble(("Keys\n\n", "bold"))
    for keys, words in KEYS:
        text.append(f" {keys:20}", "bold").append(f"{words}\n")
    text.append("\nThe filter (/) takes the same words as stoker ls:\n\n", "bold")
    for keys, words in FILTER_EXAMPLES:
        text.append(f" {keys:22}", "bold").append(f"{words}\n")
    return text.append("\nClosing this program changes nothing: jobs run without it.")
