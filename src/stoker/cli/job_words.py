"""Select jobs by the words of a command."""

from __future__ import annotations

from stoker.client.queue import Queue
from stoker.errors import UsageError
from stoker.text.selectors import parse_selector


def select_jobs(queue: Queue, words: list[str]) -> list[int]:
    """The ids of the selected jobs. Raises UsageError if `words` is empty."""
    if not words:
        raise UsageError("no jobs given", "`stoker help selectors` explains how to select jobs")
    return queue.select(words)


def is_one_job(ids: list[int], words: list[str]) -> bool:
    """Whether the user named a single job. Then a command that changes nothing is an error; with a
    state such as `all` it is not."""
    return len(ids) == 1 and all(parse_selector(word).states is None for word in words)
