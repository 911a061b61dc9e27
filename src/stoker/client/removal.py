"""Remove finished jobs: their records, logs, reports and stored calls.

Removes the files of a batch before its records, so that an interrupted removal leaves jobs that can
be removed again, and no file without a job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from stoker.engine.store import changes, function_folders, job_queries
from stoker.engine.store.database import Database
from stoker.engine.supervisor.logs import is_metrics, job_files, remove_files, size_of
from stoker.features import BEFORE_REMOVAL, REMOVED_FILES, REMOVED_RECORDS, call, load
from stoker.record import Record
from stoker.states import FINAL
from stoker.text.plurals import plural
from stoker.text.sizes import format_size

_BATCH = 1000


class Plan(Record):
    """What a removal of jobs would delete."""

    jobs: int
    file_bytes: int
    with_metrics: int  # jobs outside sweeps: their metrics exist only in these files
    trials: int  # with files: their sweep keeps the last values of their metrics, not the curves

    def words(self) -> str:
        """`3 finished jobs with their logs (12 KiB) and the metrics of 2 of them`."""
        whose = "its" if self.jobs == 1 else "their"
        text = f"{plural(self.jobs, 'finished job')} with {whose} logs"
        text += f" ({format_size(self.file_bytes)})" if self.file_bytes else ""
        text += f" and the metrics of {self.with_metrics} of them" * bool(self.with_metrics)
        if not self.trials:
            return text
        return f"{text}, with the curves of {plural(self.trials, 'trial')} (results stay)"


def removal_plan(db: Database, ids: list[int]) -> Plan:
    """Return what the removal of these finished jobs would delete."""
    files = [path for place in _folders(db) for path in job_files(place, ids)]
    reported = {int(os.path.basename(p).partition(".")[0]) for p in files if is_metrics(p)}
    jobs = {int(re.split("[-.]", os.path.basename(path))[0]) for path in files}
    return Plan(
        jobs=len(ids),
        file_bytes=sum(map(size_of, files)),
        with_metrics=len(reported) - len(job_queries.in_sweeps(db, reported)),
        trials=len(job_queries.in_sweeps(db, jobs)),
    )


class Removal:
    """Removes jobs and counts them; the counts are valid also after an exception."""

    def __init__(self, db: Database, on_progress: Callable[[int], None] | None = None) -> None:
        self._db = db
        self._on_progress = on_progress
        self.jobs: list[int] = []
        self.log_bytes = 0
        self.kept: list[str] = []  # folders with files that jobs created in their snapshots

    def remove(self, ids: list[int]) -> None:
        """Remove these jobs, except those that have not finished."""
        for row in BEFORE_REMOVAL.values():
            load(row)(self._db, ids)
        folders = function_folders.folders_of(self._db, ids, _folders(self._db))
        try:
            for start in range(0, len(ids), _BATCH):
                self._remove_batch(ids[start : start + _BATCH])
        finally:
            function_folders.drop(self._db, folders, self.jobs)
        with self._db.transaction():
            for row in REMOVED_RECORDS.values():
                load(row)(self._db)
        for row in REMOVED_FILES.values():
            self.kept += load(row)(self._db, _folders(self._db))

    def _remove_batch(self, ids: list[int]) -> None:
        final = job_queries.in_states(self._db, ids, FINAL)
        self.log_bytes += remove_files(_folders(self._db), final)
        self.jobs += changes.remove(self._db, final)
        if self._on_progress is not None:
            self._on_progress(len(self.jobs))


def _folders(db: Database) -> list[str]:
    """The folders with files of jobs."""
    return [db.folder, *(call("backend_folders", db) or ())]
