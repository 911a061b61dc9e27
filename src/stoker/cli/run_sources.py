"""Where the jobs of `stoker run` come from: one command, or the lines of a file or pipe.

A sweep is the third source: see run_sweep.py.
"""

from __future__ import annotations

import os
import stat
import time

from stoker.cli.lines import LineReader, open_lines
from stoker.cli.specs import SpecMaker
from stoker.core.model import JobSpec
from stoker.store.submissions import Submission


class WordSource:
    """One command."""

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
    """Lines of a file or pipe, less those that succeeded before."""

    def __init__(self, path: str, maker: SpecMaker, done: dict[tuple[str, ...], int]) -> None:
        self._reader = LineReader(open_lines(path))
        # Also `run - < jobs.txt`: a file is always ready, and epoll does not know it.
        self._is_file = stat.S_ISREG(os.fstat(self._reader.descriptor).st_mode)
        self._maker = maker
        self._done = done
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
        """Jobs behind what was read, for a run that was told to stop; None: nobody can tell."""
        if not self._is_file:
            return None if not self.at_end else 0
        count = 0
        while not self.at_end:
            for line in self._reader.read():
                if self._done.get((line.text,), 0):
                    self._done[line.text,] -= 1
                    self.skipped += 1
                else:
                    count += 1
        return count

    def read(self) -> list[JobSpec]:
        specs = []
        for line in self._reader.read():
            spec = self._maker.line(line)
            if self._done.get(spec.argv, 0):
                self._done[spec.argv] -= 1
                self.skipped += 1
            else:
                specs.append(spec)
        return specs
