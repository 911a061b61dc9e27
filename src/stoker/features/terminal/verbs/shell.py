"""`stoker shell`: a shell on GPUs, or another program, on this terminal."""

from __future__ import annotations

from stoker.cli.job_flags import INTERACTIVE_FLAGS
from stoker.cli.open_queue import open_queue
from stoker.features.terminal.start import run_interactive
from stoker.text.command_line import Parsed, Verb

VERB = Verb(
    "shell",
    "shell [OPTIONS] [[--] COMMAND...]",
    "Wait for GPUs, and open a shell on this terminal that uses them, or run a command.",
    INTERACTIVE_FLAGS,
    (
        ("stoker shell --gpus 1 -t 2h", "a shell for at most two hours"),
        ("stoker shell --gpu-mem 10G", "a part of a GPU is free sooner"),
        ("stoker shell python", "the same as `stoker run -it python`"),
        ("stoker shell --idle 3h -- jupyter lab --no-browser", "a notebook server"),
    ),
    """The shell is a job of the queue with priority 10: it starts before jobs of the default
priority. Ctrl-C while it waits cancels it.

It ends when you leave it, at its time limit, or after 30 minutes without use (`--idle`, setting
`terminal_idle`), with a warning 5 minutes before. It counts as used while something is typed or
printed, or while its processes use at least 5 % of a CPU core.

Ctrl-P Ctrl-Q, or a lost connection, leaves it running; `stoker attach` returns to it.""",
    keeps_words=True,
    words="files",
    has_json=False,
)


def run(parsed: Parsed) -> int:
    return run_interactive(open_queue(), parsed, parsed.words)
