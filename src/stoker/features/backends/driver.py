"""The driver of one backend: submits its jobs, watches them, and records what happened.

The daemon runs one driver for each backend with work. It has no state outside the database and the
chunk files: if it is killed, the next one continues. Events of workers are read from files; the
engine itself is asked with one listing per poll, less often while nothing changes.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import sys

from stoker.client.live.change_feed import ChangeFeed
from stoker.engine.daemon.clock import SystemClock
from stoker.engine.daemon.interfaces import Clock
from stoker.engine.daemon.start import wake_daemon
from stoker.engine.store import attempts, ready_jobs
from stoker.engine.store.database import open_database
from stoker.engine.supervisor.parent_death import die_with_parent
from stoker.errors import Error
from stoker.features.backends import chunk_files
from stoker.features.backends import store as backends
from stoker.features.backends import store_allocations as allocations
from stoker.features.backends.event_collector import EventCollector
from stoker.features.backends.hand_over import HandOver
from stoker.features.backends.protocol import (
    PENDING,
    RUNNING,
    UNKNOWN,
    AllocationRequest,
    Backend,
    Batch,
    Rejected,
    Status,
    Unreachable,
    open_backend,
)
from stoker.features.backends.store_allocations import Allocation
from stoker.fields import from_fields
from stoker.settings import Settings, load_settings
from stoker.testing.failpoints import failpoint

_FILES_SECONDS = 1.0  # between two looks at event files
_NODES_SECONDS = 60.0  # between two listings of the nodes
_CHANGED_NODES_SECONDS = 10.0  # the same, if allocations have started or ended
# An engine may report an end before the last events are visible on a network file system.
_GRACE_SECONDS = 5.0
_FORGOTTEN_SECONDS = 30.0  # for allocations that the engine does not list
_KILL_SECONDS = 30.0  # after the grace period of a job, before its allocation is cancelled
_OF_THE_ENGINE = ("engine_cancel", "preempted")  # causes that say nothing about the worker
_WORKERS_AT_ONCE = 16  # whose events one transaction records
_MAX_WATCHED = 200  # allocations that wait in the engine's queue and may have started


class Driver:
    """`clock` and `backend`: a simulation has its own (bench/scale.py)."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        clock: Clock | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._db = open_database(settings.state_dir)
        # Events can be read again after a crash of the host, so their records are not synced.
        self._records = open_database(settings.state_dir, durable=False)
        row = backends.backend(self._db, name)
        if row is None:
            raise SystemExit(0)  # removed meanwhile
        self._name = name
        self._config = (row.options, row.folder, row.environment)
        self._backend = backend or open_backend(row, settings)
        self._files = row.folder or settings.state_dir
        self._folder = chunk_files.batches_folder(self._files, name)
        self._collector = EventCollector(self._records, settings, self._clock)
        self._hand_over = HandOver(
            self._db, settings, self._backend, self._files, self._folder, self._clock
        )
        self._open_ones: list[Allocation] = []
        self._open_version: tuple[int, int] | None = None
        self._poll_at = 0.0
        self._worked_at = self._clock.mono()  # when there was work last
        self._poll_seconds = 0.0
        self._nodes_at = 0.0
        self._problem = row.problem
        self._suspects: dict[int, float] = {}  # allocations that seem to have ended, and since when
        self._stops: dict[int, float] = {}  # attempts that were asked to stop, and when
        self._to_cancel: set[int] = set()  # allocations that the engine shall end
        self._retry_at = 0.0  # when to contact the engine again after an error
        self._failures = 0

    def work(self) -> None:
        """Run rounds until the backend has nothing to do."""
        feed = ChangeFeed(self._settings.state_dir)
        try:
            self._remove_leftovers()
            while not self._is_changed() and (self.round() or self._lingers()):
                feed.wait(self.timeout())
        finally:
            feed.close()
            self._backend.close()
            self._records.close()
            self._db.close()

    def _lingers(self) -> bool:
        """Whether to wait for more jobs: a new driver would have to connect again."""
        return self._clock.mono() - self._worked_at < self._backend.linger_seconds

    def timeout(self) -> float:
        """Seconds until the next round, if nothing happens before."""
        now = self._clock.mono()
        due = [now + _FILES_SECONDS]
        if now - self._worked_at < _FILES_SECONDS:  # else it lingers
            due.append(max(self._poll_at, self._retry_at))
        if self._hand_over.next_due is not None:
            due.append(max(self._hand_over.next_due, self._retry_at))
        return max(0.05, min(due) - now)

    def round(self) -> bool:
        """One round; returns whether the backend still has work."""
        is_changed = self._collect()
        now = self._clock.mono()
        is_changed |= self._stop_jobs(now)
        if now >= self._retry_at:
            try:
                is_changed |= self._talk(now)
                self._solved()
            except Unreachable as error:
                self._failed(now, str(error))
            except Rejected as error:
                self._failed(now, f"refused: {error}")
            except OSError as error:  # in the folder with the chunks
                self._failed(now, f"cannot use the folder {self._files}: {error.strerror}")
        if is_changed:
            wake_daemon(self._settings.state_dir)
        if self._has_work():
            self._worked_at = self._clock.mono()
            return True
        return False

    def _is_changed(self) -> bool:
        """Whether the backend was given other options or another folder."""
        row = backends.backend(self._db, self._name)
        if row is not None and row.problem is None and self._problem is not None:
            self._problem = None  # `stoker backend test` removed it
            self._hand_over.try_again()
        return row is None or (row.options, row.folder, row.environment) != self._config

    def _talk(self, now: float) -> bool:
        """Everything that needs the engine; returns whether the queue changed."""
        is_changed = self._resubmit()
        if now >= self._nodes_at:
            self._record_nodes(now)
        if self._to_cancel:
            open_ones = [one for one in self._open() if one.id in self._to_cancel]
            self._backend.cancel(open_ones)
            self._to_cancel.clear()
            self._poll_at = now
        if self._hand_over.submit_ready(now):
            self._poll_soon(now)
            is_changed = True
        if now >= self._poll_at and self._open():
            is_changed |= self._poll(now)
        return is_changed

    def _has_work(self) -> bool:
        return bool(self._open()) or bool(ready_jobs.ready_groups(self._db, self._name))

    def _open(self) -> list[Allocation]:
        """The allocations that have not ended, read again only after a change."""
        version = self._db.version()
        if version != self._open_version:
            self._open_version = version
            self._open_ones = allocations.open_allocations(self._db, self._name)
        return self._open_ones

    def _chunk(self, one: Allocation) -> str:
        return os.path.join(self._folder, one.token, str(one.task))

    # -- problems --------------------------------------------------------------------------------

    def _failed(self, now: float, problem: str) -> None:
        """The engine did not answer or refused: nothing is known, so nothing is changed."""
        self._failures += 1
        self._retry_at = now + min(60.0, 2.0 ** min(self._failures, 6))
        self._set_problem(problem)

    def _solved(self) -> None:
        self._failures = 0
        self._set_problem(self._hand_over.problem)

    def _set_problem(self, problem: str | None) -> None:
        if problem != self._problem:
            with self._db.transaction():
                backends.record_problem(self._db, self._name, problem, self._clock.wall())
            self._problem = problem
            if problem is not None:
                print(f"backend {self._name}: {problem}", file=sys.stderr, flush=True)

    def _record_nodes(self, now: float) -> None:
        nodes = self._backend.nodes()
        self._nodes_at = now + _NODES_SECONDS
        self._hand_over.nodes = nodes
        with self._db.transaction():
            backends.record_nodes(self._db, self._name, nodes, self._clock.wall())

    # -- after a crash ---------------------------------------------------------------------------

    def _resubmit(self) -> bool:
        """Request allocations that an earlier driver recorded and perhaps did not request."""
        fresh: dict[str, list[Allocation]] = {}
        for one in self._open():
            if one.state == allocations.NEW:
                fresh.setdefault(one.token, []).append(one)
        for token, found in fresh.items():
            batch = Batch(
                token=token,
                folder=os.path.join(self._folder, token),
                tasks=tuple(one.task for one in found),
                request=from_fields(AllocationRequest, json.loads(found[0].request)),
            )
            known = self._backend.adopt(token)
            self._hand_over.record_ids(found, known)
            missing = [one for one in found if one.task not in known]
            if not missing:
                continue
            try:
                tasks = tuple(one.task for one in missing)
                ids = self._backend.submit(batch._replace(tasks=tasks))
            except Rejected as error:
                self._hand_over.withdraw(missing)  # `submit_ready` tries again and says why not
                print(f"backend {self._name}: {error}", file=sys.stderr, flush=True)
                continue
            self._hand_over.record_ids(missing, ids)
        if fresh:
            self._poll_soon(self._clock.mono())
        return bool(fresh)

    def _remove_leftovers(self) -> None:
        """Remove folders of batches that were never recorded or have ended."""
        known = {one.token for one in self._open()}
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return
        for name in names:
            if name not in known:
                chunk_files.remove_folder(os.path.join(self._folder, name))

    # -- events of workers -----------------------------------------------------------------------

    def _collect(self) -> bool:
        """Record new events of all workers; returns whether there were any."""
        found = self._open()
        watched = [one for one in found if one.state == allocations.RUNNING]
        watched += [one for one in found if one.state != allocations.RUNNING][:_MAX_WATCHED]
        fresh = [one for one in watched if self._collector.has_news(one, self._chunk(one))]
        for first in range(0, len(fresh), _WORKERS_AT_ONCE):
            self._record(fresh[first : first + _WORKERS_AT_ONCE])
        return bool(fresh)

    def _record(self, found: list[Allocation]) -> None:
        """Record the events of some workers, in short transactions."""
        recorded: set[int] = set()
        left = found
        while left:
            try:
                with self._records.transaction():
                    counts = [self._collector.record(one, self._chunk(one)) for one in left]
                    failpoint("driver.before_record")
            except (Error, sqlite3.Error):
                self._collector.rolled_back()
                raise
            failpoint("driver.after_record")
            left = [one for one, count in zip(left, counts, strict=True) if count]
            recorded.update(one.id for one in left)
        for one in found:
            if one.id in recorded:
                self._recorded(one)

    def _recorded(self, one: Allocation) -> None:
        """New events of a worker are in the database."""
        seen = self._collector.seen(one)
        if seen.has_run:
            self._hand_over.worker_started()
        if seen.is_closed:
            if not allocations.unfinished(self._records, one.id):
                self._end(one, "completed")
            else:
                self._poll_at = self._clock.mono()  # the engine ended it: ask why

    def _end(
        self, one: Allocation, reason: str, cause: str = "lost", is_certain: bool = False
    ) -> None:
        if self._collector.seen(one).was_drained:
            self._hand_over.was_drained(one)
        with self._records.transaction():
            self._collector.end_allocation(one, self._chunk(one), cause, reason, is_certain)
        self._suspects.pop(one.id, None)
        self._hand_over.allocation_ended()
        if not any(other.token == one.token for other in self._open()):
            # The events are about to be removed: sync their records. One commit syncs all before.
            with self._db.transaction():
                allocations.update(self._db, one.id, state=allocations.ENDED)
            chunk_files.remove_folder(os.path.join(self._folder, one.token))

    # -- the engine's view -----------------------------------------------------------------------

    def _poll_soon(self, now: float) -> None:
        self._poll_seconds = self._backend.poll_seconds()[0]
        self._poll_at = min(self._poll_at, now + self._poll_seconds) if self._poll_at > now else now

    def _poll(self, now: float) -> bool:
        found = [one for one in self._open() if one.state != allocations.NEW]
        statuses = self._backend.poll(found)
        is_changed = False
        for one in found:
            is_changed |= self._apply(one, statuses.get(one.id), now)
        first, longest = self._backend.poll_seconds()
        is_urgent = is_changed or self._suspects
        self._poll_seconds = first if is_urgent else min(1.5 * self._poll_seconds, longest)
        self._poll_at = now + self._poll_seconds
        if is_changed:
            self._nodes_at = min(self._nodes_at, now + _CHANGED_NODES_SECONDS)
        return is_changed

    def _apply(self, one: Allocation, status: Status | None, now: float) -> bool:
        if status is not None and status.state in (PENDING, RUNNING):
            self._suspects.pop(one.id, None)
            return self._update(one, status)
        if status is not None and status.state == UNKNOWN:
            return False
        # It has ended. The worker's last events decide; they may be a moment away.
        self._record([one])
        if allocations.load(self._db, one.id).state == allocations.ENDED:
            return True
        since = self._suspects.setdefault(one.id, now)
        is_closed = self._collector.seen(one).is_closed
        grace = _FORGOTTEN_SECONDS if status is None else _GRACE_SECONDS
        if not is_closed and self._collector.seen(one).is_owned and now - since < grace:
            return False
        if status is None and now - since < grace:
            return False
        chunk_files.revoke(self._chunk(one))
        self._record([one])
        if status is None:
            self._end(one, "the engine no longer knows it")
            return True
        if not self._collector.seen(one).has_run and status.cause not in _OF_THE_ENGINE:
            self._start_failed(one, status, now)
        self._end(one, status.reason, status.cause or "lost", status.is_certain)
        return True

    def _start_failed(self, one: Allocation, status: Status, now: float) -> None:
        """An allocation ended and its worker ran no job: say why, with what it printed."""
        where = f" on node {status.node}" if status.node else ""
        printed = ""
        if status.is_certain:
            printed = self._backend.worker_output(os.path.join(self._folder, one.token), one.task)
        did = "failed" if self._collector.seen(one).is_owned else "did not start"
        problem = f"the worker {did}{where}: {printed or status.reason}"
        self._hand_over.worker_failed(problem, one.created_at, now)

    def _update(self, one: Allocation, status: Status) -> bool:
        state = allocations.RUNNING if status.state == RUNNING else allocations.SUBMITTED
        reason = status.reason or None
        node = status.node or one.node
        if one.state == allocations.RUNNING and state == allocations.SUBMITTED:
            # The engine requeued it. A late listing may also be older than the worker's start.
            state = one.state
        if (state, reason, node) == (one.state, one.reason, one.node):
            return False
        with self._db.transaction():
            allocations.update(self._db, one.id, state=state, reason=reason, node=node)
        return True

    # -- cancel ----------------------------------------------------------------------------------

    def _stop_jobs(self, now: float) -> bool:
        """Pass on cancellations through the files of the chunks; returns whether there were any.

        This needs no engine. Allocations without a job that is still wanted, and those whose worker
        does not stop a job in time, are left to the engine (`_to_cancel`).
        """
        wanted = allocations.to_stop(self._db, self._name)
        if not wanted:
            self._stops.clear()
            return False
        by_id = {one.id: one for one in self._open()}
        fresh: dict[int, list[allocations.RemoteAttempt]] = {}
        for id, attempt in wanted:
            asked = self._stops.get(attempt.attempt)
            grace = self._settings.grace if attempt.grace is None else attempt.grace
            if asked is None:
                self._stops[attempt.attempt] = now
                fresh.setdefault(id, []).append(attempt)
            elif now - asked > grace + _KILL_SECONDS and id in by_id:
                self._stops[attempt.attempt] = now
                self._to_cancel.add(id)
        for id, stopping in fresh.items():
            if id in by_id:
                self._stop_in(by_id[id], stopping)
        return bool(fresh)

    def _stop_in(self, one: Allocation, stopping: list[allocations.RemoteAttempt]) -> None:
        """Stop jobs of one allocation. Those that no worker can start any more end at once."""
        folder = self._chunk(one)
        lines = [{"job": attempt.job, "grace": attempt.grace} for attempt in stopping]
        try:
            chunk_files.append_lines(os.path.join(folder, chunk_files.STOPS), lines)
        except OSError:  # the folder is gone
            self._to_cancel.add(one.id)
        is_owned = chunk_files.is_owned(folder)
        with self._db.transaction():
            for attempt in stopping:
                if is_owned:
                    attempts.mark_stopping(self._db, attempt.job)
                else:
                    allocations.cancel_unstarted(self._db, attempt, "user", self._clock.wall())
        if not is_owned and not allocations.unfinished(self._db, one.id):
            self._to_cancel.add(one.id)


def main(parent: int, name: str) -> None:
    die_with_parent(parent)  # the next daemon starts its own driver
    settings = load_settings()
    path = os.path.join(settings.state_dir, f"backend-{name}.lock")
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # two drivers would submit the same jobs
    try:
        Driver(settings, name).work()
    except Error as error:
        print(f"error: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
