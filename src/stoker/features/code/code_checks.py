"""Whether the code of a job has changed since it was submitted, when it starts without a snapshot.

The daemon never reads the folder of a job, which may be on a dead server. The process that the job
starts in compares the code (features/code/check_files.py) and reports the difference with its
start. Jobs with the same code that start soon after use that result, so at most one start in some
seconds is delayed by git. A job that starts soon after its submit is not checked. The worker of a
backend has the files to compare with in the folder of its chunk.
"""

from __future__ import annotations

import os

from stoker.engine.daemon.interfaces import OrderHook
from stoker.engine.model import ReadyJob
from stoker.engine.store.database import Database
from stoker.engine.supervisor.messages import AttemptStarted, Order
from stoker.features.code import store as code_states
from stoker.features.code.check_files import check_path, write_check
from stoker.record import Record

MIN_WAIT_SECONDS = 2.0
_REUSE_SECONDS = 2.0
_MAX_KNOWN = 1000


class _Checked(Record):
    at: float  # monotonic; when the check was requested
    text: str  # the difference in words; "": none, or not known yet


class CodeChecks(OrderHook):
    def __init__(self, db: Database, chunk: str | None = None) -> None:
        """`chunk`: the folder of a chunk, whose jobs have waited in the queue of a backend."""
        self._db = db
        self._chunk = chunk
        self._min_wait = MIN_WAIT_SECONDS if chunk is None else 0.0
        self._checked: dict[int, _Checked] = {}  # by code state
        self._requested: dict[int, int] = {}  # attempt -> code state
        self._files: dict[int, str] = {}

    def complete(self, order: Order, job: ReadyJob, now: float) -> Order:
        """The order with the file to compare the code with, or with the known difference."""
        if job.code is None or job.snapshot is not None or now - job.since < self._min_wait:
            return order
        known = self._checked.get(job.code)
        if known is not None and now - known.at < _REUSE_SECONDS:
            return order._replace(code_note=known.text)
        if len(self._checked) > _MAX_KNOWN:
            self._checked.clear()
            self._requested.clear()
        self._checked[job.code] = _Checked(now, "" if known is None else known.text)
        path = self._file(job.code)
        if path:
            self._requested[order.attempt] = job.code
        return order._replace(code_check=path)

    def started(self, event: AttemptStarted) -> None:
        """Take the result of a check that an attempt made."""
        code = self._requested.pop(event.attempt, None)
        if code is not None and code in self._checked:
            self._checked[code] = self._checked[code]._replace(text=event.code_note)

    def _file(self, code: int) -> str:
        """The file that a check reads; "" if the recorded state cannot be compared."""
        if self._chunk is not None:
            path = check_path(self._chunk, code)
            return path if os.path.exists(path) else ""
        if code not in self._files:
            state = code_states.load(self._db, code)
            if state is None or state.problem is not None:
                self._files[code] = ""
            else:
                diff = code_states.diff_of(self._db, code)
                try:
                    self._files[code] = write_check(
                        self._db.folder, code, state.root, state.commit, diff
                    )
                except OSError:  # a full disk: the job starts without a check
                    return ""
        return self._files[code]
