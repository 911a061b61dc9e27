"""Notes, tags and stars of jobs and sweeps in Python."""

from __future__ import annotations

import pytest

import stoker
from stoker.errors import NotFound, UsageError
from tests.lab import Lab


def test_handles_change_note_tags_and_star(here: Lab) -> None:
    job = stoker.submit("true", gpus=0, hold=True, tags="draft")
    swept = stoker.sweep("echo {lr}", {"lr": [1]}, name="mine", gpus=0, hold=True)
    for one in (job, swept):
        assert (one.note, one.starred) == ("", False)
        one.note = "diverged"
        one.starred = True
        one.tag("paper", "lr", remove="draft")
        assert (one.note, one.starred, one.tags) == ("diverged", True, ("lr", "paper"))
        one.starred = False
        one.note = ""
        assert (one.note, one.starred) == ("", False)
    with pytest.raises(UsageError, match="the note has 70000 bytes"):
        job.note = "x" * 70_000
    with pytest.raises(UsageError, match="must not be empty"):
        job.tag("")
    job.cancel()
    here.ok("rm", "-y", str(job.id))
    with pytest.raises(NotFound):
        job.note = "too late"
