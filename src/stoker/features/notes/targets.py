"""The jobs and sweeps that `note`, `tag` and `star` are about."""

from __future__ import annotations

from stoker.cli.output import plural
from stoker.client.queue import Queue
from stoker.client.submit.option_values import filled
from stoker.errors import UsageError
from stoker.features.notes.client import Targets, select_targets
from stoker.text.command_line import Option, Parsed

SWEEP = Option(
    "--sweep", "a sweep whose name is also that of a job or a tag", "NAME", filled, many=True
)


def chosen(queue: Queue, parsed: Parsed, words: list[str]) -> Targets:
    """The jobs and sweeps of `words` and of `--sweep`.

    Raises UsageError if there are no words, NotFound if one selects nothing.
    """
    names = parsed["sweep"] or []
    if not words and not names:
        raise UsageError(
            "no jobs given",
            "give jobs or the name of a sweep; `stoker help selectors` explains how to select jobs",
        )
    return select_targets(queue, words, names)


def counted(targets: Targets) -> str:
    """`2 jobs and 1 sweep`."""
    parts = [
        plural(len(found), word)
        for found, word in ((targets.jobs, "job"), (targets.sweeps, "sweep"))
        if found
    ]
    return " and ".join(parts) or "0 jobs"
