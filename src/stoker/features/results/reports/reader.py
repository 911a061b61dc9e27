"""The report reader: reads the reports of trials when they have ended, and stores the summaries.

python -m stoker.features.results.reports.reader PARENT

stdin    ids of jobs, separated by spaces; exits at end of file, or after a minute without ids

The daemon starts this process when trials end. Without it, the first table of a sweep with two
thousand trials would read two thousand files. It may be killed at any time: the next reader of the
sweep reads what is missing.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import closing

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database, open_database
from stoker.engine.supervisor.parent_death import die_with_parent
from stoker.errors import Error, NotFound
from stoker.features.results.reports import store as job_metrics
from stoker.features.results.reports.reports import JobFiles, collect, source_of_job
from stoker.features.results.reports.store import summarized
from stoker.features.results.reports.summary import Collector
from stoker.features.sweeps import store as sweeps
from stoker.settings import load_settings
from stoker.states import FINAL

_LINGER_SECONDS = 60.0
# Summaries are saved so often at most: a transaction of this process may delay one of the loop.
_SAVE_SECONDS = 1.0
_CHUNK = 200  # jobs in one transaction
# More ids than this are forgotten: trials end faster than their reports can be read.
_MAX_WAITING = 20_000


def store_reports(db: Database, files: JobFiles, ids: list[int]) -> None:
    """Store the summaries of trials that have ended. Other jobs are ignored."""
    reports: dict[int, list[tuple[int, int, str]]] = {}  # by sweep
    metrics = []
    for id in ids:
        try:
            job = job_queries.job(db, id)
        except NotFound:
            continue  # removed meanwhile
        trial = sweeps.trial_of(db, id)
        if job.sweep is None or trial is None or job.state not in FINAL:
            continue
        collector = collect(files, source_of_job(job), Collector())
        reports.setdefault(job.sweep, []).append((trial[0], id, collector.to_json()))
        metrics.append((id, job.attempts, summarized(collector)))
    with db.transaction():
        for sweep, found in reports.items():
            sweeps.save_reports(db, sweep, found)
        job_metrics.save(db, metrics)


class Inbox:
    """The ids that arrive through a pipe, the oldest first."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._ids: dict[int, None] = {}
        self.is_closed = False

    def wait(self, seconds: float) -> bool:
        """Wait until there are ids; False if none arrived."""
        deadline = time.monotonic() + seconds
        while not self.is_closed:
            left = 0.0 if self._ids else max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                break
            data = os.read(self._descriptor, 1 << 16)
            self.is_closed = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            words = b" ".join(lines).split()
            self._ids.update((int(word), None) for word in words if word.isdigit())
            for id in list(self._ids)[: max(0, len(self._ids) - _MAX_WAITING)]:
                del self._ids[id]
        return bool(self._ids)

    def take(self, most: int) -> list[int]:
        found = list(self._ids)[:most]
        for id in found:
            del self._ids[id]
        return found


def work(db: Database, files: JobFiles, inbox: Inbox) -> None:
    """Store reports until the pipe is closed, or nothing arrives for a while."""
    while inbox.wait(_LINGER_SECONDS):
        store_reports(db, files, inbox.take(_CHUNK))
        time.sleep(_SAVE_SECONDS)


def main(words: list[str]) -> None:
    die_with_parent(int(words[0]))
    os.nice(10)  # jobs come first
    try:
        settings = load_settings()
        with closing(open_database(settings.state_dir, durable=False)) as db:
            work(db, JobFiles(settings.state_dir), Inbox(0))
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main(sys.argv[1:])
