"""The first jobs of each request group: the part of the queue that the policy sees.

Only as many jobs are read as a decision needs, so the cost does not grow with the queue.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from stoker.engine.model import ReadyJob, Request
from stoker.engine.store import ready_jobs
from stoker.engine.store.database import Database

# How many ready jobs of a request group are read at a time. A decision needs fewer
# (`jobs_per_group` in engine/policy/decide.py).
_READ_AHEAD = 64


class WaitingJobs:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[int, ready_jobs.RequestGroup] = {}
        self._jobs: dict[int, deque[ReadyJob]] = {}  # by request group
        self._kept: list[ReadyJob] | None = None  # devices are being vacated for them

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def refresh(self) -> None:
        """Drop the jobs in memory, because the queue has changed."""
        self._jobs = {group: deque() for group in ready_jobs.ready_groups(self._db)}
        self._kept = None

    def group(self, id: int) -> ready_jobs.RequestGroup:
        group = self._known.get(id)
        if group is None:
            group = self._known[id] = ready_jobs.load_group(self._db, id)
        return group

    def first(self, count: int, clock_offset: float) -> list[ReadyJob]:
        """The first `count` jobs of each request group, and those with kept devices."""
        if self._kept is None:
            self._kept = ready_jobs.with_kept_devices(self._db, clock_offset)
        found: list[ReadyJob] = list(self._kept)
        kept = {job.id for job in found}
        for group, jobs in list(self._jobs.items()):
            if not jobs:
                jobs.extend(
                    ready_jobs.first(self._db, self.group(group), _READ_AHEAD, clock_offset)
                )
            if not jobs:
                del self._jobs[group]
            others = (job for job in jobs if job.id not in kept) if kept else jobs
            found += islice(others, count)
        return found

    def requests(self) -> list[Request]:
        """The request of each group."""
        return [self.group(group).request for group in self._jobs]

    def find(self, id: int) -> ReadyJob:
        groups = (self._kept or (), *self._jobs.values())
        return next(job for jobs in groups for job in jobs if job.id == id)

    def take(self, job: ReadyJob) -> None:
        """Remove a job that was claimed."""
        if job.kept and self._kept is not None:
            self._kept = [one for one in self._kept if one.id != job.id]
        for jobs in self._jobs.values():
            if job in jobs:
                jobs.remove(job)
                return
