"""Sources of the jobs of `stoker run`: one command, or the lines of a file or pipe.

The third source, a sweep, is in run_sweep.py.
"""

from __future__ import annotations

import os
import stat
import time

from stoker.cli.job_lines import LineReader, open_lines
from stoker.client.submit.job_identity import Occurrences
from stoker.client.submit.job_specs import JobSpecs
from stoker.engine.model import JobSpec
from stoker.engine.store.resumable_jobs import FinishedJobs
from stoker.engine.store.submit import Submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.text.commands.job_file import JobLine


class WordSource:
    """A single command."""

    descriptor = None

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self.at_end = False
        self.skipped = 0

    @property
    def is_ready(self) -> bool:
        return not self.at_end

    def read(self) -> list[JobSpec]:
        self.at_end = True
        return [self._spec]

    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        submission.add(specs, time.time())


class LineSource:
    """Lines of a file or pipe, without those that succeeded in an earlier run."""

    def __init__(self, path: str, maker: JobSpecs, finished: FinishedJobs | None) -> None:
        """`finished`: jobs that succeeded before; None for a run that cannot be resumed."""
        self._reader = LineReader(open_lines(path))
        # epoll refuses regular files, also as stdin (`run - < jobs.txt`).
        self._is_file = stat.S_ISREG(os.fstat(self._reader.descriptor).st_mode)
        self._maker = maker
        self._finished = finished
        self._occurrences = Occurrences()
        self.skipped = 0

    @property
    def descriptor(self) -> int | None:
        return None if self._is_file else self._reader.descriptor

    @property
    def at_end(self) -> bool:
        return self._reader.at_end

    @property
    def is_ready(self) -> bool:
        return not self._reader.at_end

    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        submission.add(specs, time.time())

    def count_unread(self) -> int | None:
        """The number of jobs in the rest of the input; None if that is a pipe and unknown."""
        if not self._is_file:
            return None if not self.at_end else 0
        count = 0
        while not self.at_end:
            count += len(self.read())
        return count

    def read(self) -> list[JobSpec]:
        lines = self._reader.read()
        if self._finished is None:
            return [self._maker.line(line) for line in lines]
        return [spec for line in lines if (spec := self._unfinished(line)) is not None]

    def _unfinished(self, line: JobLine) -> JobSpec | None:
        """The job of a line, with a key that identifies it in later runs; None if it succeeded."""
        assert self._finished is not None
        job = self._maker.resumable_line(line)
        key = self._occurrences.next_key(job.identity)
        if self._finished.has(key, job.spec, job.declared_env):
            self.skipped += 1
            return None
        return job.spec._replace(dedupe=key)
