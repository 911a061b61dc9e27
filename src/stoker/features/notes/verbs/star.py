"""`stoker star`: mark jobs and sweeps with a star, or remove it."""

from __future__ import annotations

from stoker.cli.open_queue import open_queue
from stoker.cli.output import print_change
from stoker.features.notes.client import star
from stoker.features.notes.targets import SWEEP, chosen, counted
from stoker.text.command_line import Option, Parsed, Verb

VERB = Verb(
    "star",
    "star [--remove] JOB|SWEEP...",
    "Mark jobs and sweeps with a star, to find them again: `stoker ls --starred`.",
    (Option("--remove", "remove the star"), SWEEP),
    (
        ("stoker star 7", ""),
        ("stoker star brave-otter", "a sweep; `stoker sweep ls --starred` lists it"),
        ("stoker star --remove starred", "removes the stars of all jobs"),
        ("stoker results starred", "the jobs with a star"),
    ),
    words="jobs",
)


def run(parsed: Parsed) -> int:
    queue = open_queue()
    targets = chosen(queue, parsed, parsed.words)
    is_added = not parsed["remove"]
    changed = star(queue, targets, is_added)
    text = f"star {'added to' if is_added else 'removed from'} {counted(targets)}"
    if len(targets) and not changed:
        text = f"unchanged: {counted(targets)} {'had a' if is_added else 'had no'} star before"
    return print_change(parsed, text, changed=changed)
