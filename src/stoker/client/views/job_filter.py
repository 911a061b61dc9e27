"""Jobs that match the words of a user: the selectors of `stoker ls`."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.client.queue import Queue
from stoker.errors import NotFound
from stoker.features import call

_MAX_FOUND = 10_000  # jobs whose command contains a text
_MAX_SEARCHED = 20_000  # the newest jobs


def select_or_sweep(queue: Queue, words: Iterable[str]) -> list[int]:
    """The selected ids, sorted. The name of a sweep selects its jobs, like `sweep:NAME`.

    Raises NotFound if a word selects no job.
    """
    ids: set[int] = set()
    for word in words:
        try:
            ids.update(queue.select([word]))
        except NotFound:
            if call("sweep_by_name", queue.db, word) is None:
                raise
            ids.update(queue.select([f"sweep:{word}"]))
    return sorted(ids)


def matching_jobs(queue: Queue, words: Iterable[str]) -> list[int]:
    """The ids of matching jobs, the newest first. A word that selects no job is searched in names
    and commands. Raises UsageError for a word that is not a selector."""
    from stoker.engine.store.job_table import Filters, JobTable

    ids: set[int] = set()
    for word in words:
        try:
            ids.update(select_or_sweep(queue, [word]))
        except NotFound:
            filters = Filters(text=word, newest=_MAX_SEARCHED)
            ids.update(JobTable(queue.db, filters).ids(limit=_MAX_FOUND))
    return sorted(ids, reverse=True)
