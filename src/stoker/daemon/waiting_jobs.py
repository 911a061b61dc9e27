"""The first jobs of each line that waits: all of the queue that a decision sees.

Lines are read as far as decisions go, so the depth of the queue does not matter.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from stoker.core.model import ReadyJob, Request
from stoker.store import ready_jobs
from stoker.store.buffered_attempts import AttemptStore
from stoker.store.database import Database

# How many ready jobs of one line are read at a time; a decision sees fewer (policy.jobs_to_see).
_READ = 64


class WaitingJobs:
    def __init__(self, db: Database, books: AttemptStore) -> None:
        self._db = db
        self._books = books
        self._known: dict[int, ready_jobs.RequestGroup] = {}
        self._jobs: dict[int, deque[ReadyJob]] = {}  # by line

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def refresh(self) -> None:
        """Forget what was read: somebody has changed the queue."""
        self._jobs = {line: deque() for line in ready_jobs.ready_groups(self._db)}

    def group(self, id: int) -> ready_jobs.RequestGroup:
        line = self._known.get(id)
        if line is None:
            line = self._known[id] = ready_jobs.load_group(self._db, id)
        return line

    def first(self, count: int, clock_offset: float) -> list[ReadyJob]:
        """So many of each line."""
        found: list[ReadyJob] = []
        for line, jobs in list(self._jobs.items()):
            if not jobs:
                jobs.extend(self._books.heads(self.group(line), _READ, clock_offset))
            if not jobs:
                del self._jobs[line]
            found += islice(jobs, count)
        return found

    def requests(self) -> list[Request]:
        """What the first job of each line asks for."""
        return [self.group(line).request for line in self._jobs]

    def find(self, id: int) -> ReadyJob:
        return next(job for jobs in self._jobs.values() for job in jobs if job.id == id)

    def take(self, job: ReadyJob) -> None:
        """It waits no more."""
        for jobs in self._jobs.values():
            if job in jobs:
                jobs.remove(job)
                return
