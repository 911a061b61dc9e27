"""Record in the queue what the workers of a backend report in their event files."""

from __future__ import annotations

import os
from typing import Any

from stoker.engine.daemon.finish_attempt import finish_attempt
from stoker.engine.daemon.gpus.gpu_usage import GpuUse
from stoker.engine.daemon.interfaces import Clock
from stoker.engine.model import Outcome
from stoker.engine.store import attempts, events
from stoker.engine.store.database import Database
from stoker.features.backends import store_allocations as allocations
from stoker.features.backends.chunk_files import EVENTS, TERMINATED, LineReader
from stoker.features.backends.store_allocations import Allocation, RemoteAttempt
from stoker.record import Record
from stoker.settings import Settings

_CANCELLED = "engine_cancel"


class Seen(Record):
    """What the event file of an allocation says so far, apart from single jobs."""

    is_owned: bool = False
    has_run: bool = False  # its worker started a job, refused one or returned one
    is_closed: bool = False
    was_drained: bool = False


class EventCollector:
    """Reads event files. All changes are made in the caller's transaction."""

    def __init__(self, db: Database, settings: Settings, clock: Clock) -> None:
        self._db = db
        self._settings = settings
        self._clock = clock
        self._readers: dict[int, LineReader] = {}
        self._announced: dict[int, set[int]] = {}  # attempts that may have started
        self._begun: dict[int, set[int]] = {}  # attempts that were started
        self._seen: dict[int, Seen] = {}

    def has_news(self, allocation: Allocation, folder: str) -> bool:
        """Whether the event file has grown since it was recorded. Needs no transaction."""
        try:
            size = os.stat(os.path.join(folder, EVENTS)).st_size
        except OSError:
            return False
        return size > self._reader(allocation, folder).position

    def seen(self, allocation: Allocation) -> Seen:
        return self._seen.get(allocation.id, Seen())

    def _reader(self, allocation: Allocation, folder: str) -> LineReader:
        reader = self._readers.get(allocation.id)
        if reader is None:
            reader = self._readers[allocation.id] = self._replayed(allocation, folder)
        return reader

    def _replayed(self, allocation: Allocation, folder: str) -> LineReader:
        """A reader at the recorded position; what came before is read once for `announced`."""
        path = os.path.join(folder, EVENTS)
        reader = LineReader(path)
        announced = self._announced.setdefault(allocation.id, set())
        while reader.position < allocation.position:
            found = reader.read(allocation.position - reader.position)
            if not found:
                break
            for event in found:
                self._note(allocation, announced, event)
        return reader

    def _note(self, allocation: Allocation, announced: set[int], event: dict[str, Any]) -> None:
        seen = self._seen.get(allocation.id, Seen())
        kind = event.get("kind")
        if kind in ("begun", "ended", "returned", "closed"):
            seen = seen._replace(has_run=True)
        if kind == "reserved":
            announced.update(attempt for _, attempt in event["jobs"])
        elif kind == "begun":
            announced.add(event["attempt"])
            self._begun.setdefault(allocation.id, set()).add(event["attempt"])
        elif kind == "owned":
            seen = seen._replace(is_owned=True, is_closed=False)
        elif kind == "closed":
            seen = seen._replace(is_closed=True)
        elif kind == "returned" and event.get("why") == "drained":
            seen = seen._replace(was_drained=True)
        self._seen[allocation.id] = seen

    def record(self, allocation: Allocation, folder: str) -> int:
        """Record new events of an allocation; returns their number."""
        reader = self._reader(allocation, folder)
        announced = self._announced[allocation.id]
        found = reader.read()
        begun: dict[int, dict[str, Any]] = {}  # starts of attempts that also ended
        ended = {event["attempt"] for event in found if event.get("kind") == "ended"}
        for event in found:
            self._note(allocation, announced, event)
            if event.get("kind") == "begun" and event["attempt"] in ended:
                begun[event["attempt"]] = event
            else:
                self._record(allocation, event, begun)
        if found:
            allocations.update(self._db, allocation.id, position=reader.position)
        return len(found)

    def rolled_back(self) -> None:
        """Events of this transaction were not recorded: read them again."""
        self._readers.clear()
        self._announced.clear()
        self._begun.clear()
        self._seen.clear()

    def forget(self, allocation: int) -> None:
        self._readers.pop(allocation, None)
        self._announced.pop(allocation, None)
        self._begun.pop(allocation, None)
        self._seen.pop(allocation, None)

    # -- single events ---------------------------------------------------------------------------

    def _record(
        self, allocation: Allocation, event: dict[str, Any], begun: dict[int, dict[str, Any]]
    ) -> None:
        kind = event.get("kind")
        if kind == "owned":
            # A repeated request may have made two allocations: the owner is the one that counts.
            engine_id, dot, restarts = event["by"].rpartition(".")
            allocations.update(
                self._db,
                allocation.id,
                state=allocations.RUNNING,
                node=event["node"],
                engine_id=engine_id if dot and restarts.isdigit() else event["by"],
            )
        elif kind == "begun":
            attempts.record_start(self._db, event["attempt"], 0, event["at"], 0.0)
            self._place(event)
        elif kind == "changed":
            events.record_event(self._db, event["job"], event["at"], "code_changed", event["files"])
        elif kind == "ended":
            start = begun.get(event["attempt"])
            if start is not None:
                self._place(start)
            self._end(event, None if start is None else start["at"])
        elif kind == "returned":
            jobs = set(event["jobs"])
            for one in allocations.unfinished(self._db, allocation.id):
                if one.job in jobs:
                    self.return_job(one, None)

    def _place(self, event: dict[str, Any]) -> None:
        allocations.record_place(self._db, event["attempt"], event["node"], event["gpus"])

    def _end(self, event: dict[str, Any], started: float | None) -> None:
        cause = event.get("cause")
        if cause == TERMINATED:
            return  # the engine knows why; `end_allocation` records it
        outcome = Outcome(
            attempt=event["attempt"],
            status=event.get("status"),
            ended_at=event["at"],
            reason=cause,
            user_seconds=event.get("user_seconds") or 0.0,
            system_seconds=event.get("system_seconds") or 0.0,
            max_rss_bytes=event.get("max_rss_bytes") or 0,
            detail=event.get("detail"),
            last_error=event.get("last_error"),
            exception=event.get("exception"),
        )
        if event.get("leftovers"):
            events.record_event(
                self._db, event["job"], event["at"], events.STOPPED_LEFTOVERS, event["leftovers"]
            )
        use = GpuUse(
            memory=event.get("gpu_memory"),
            utilization=event.get("gpu_use"),
            energy=event.get("gpu_energy"),
        )
        finish_attempt(self._db, self._settings, outcome, use, self._clock.wall(), started)

    def return_job(self, one: RemoteAttempt, why: str | None) -> None:
        """Return a job to the queue that provably did not start; `why`: for its events."""
        attempts.unclaim(self._db, one.attempt, self._clock.wall(), why)

    def end_allocation(
        self, allocation: Allocation, folder: str, cause: str, reason: str, is_certain: bool
    ) -> None:
        """Record the end of an allocation: its jobs have ended, or return to the queue.

        `cause` is that of jobs that were running: the worker did not report their ends.
        `is_certain`: the event file is complete. If the engine cancelled the allocation, jobs that
        did not start are cancelled too, unless Stoker requested that to stop one of its jobs.
        """
        left = allocations.unfinished(self._db, allocation.id)
        started = self._may_have_started(allocation, folder, is_certain, left)
        is_cancelled = cause == _CANCELLED and not any(one.stop_requested for one in left)
        now = self._clock.wall()
        for one in left:
            if one.attempt not in started:
                if is_cancelled:
                    allocations.cancel_unstarted(self._db, one, cause, now)
                else:
                    self.return_job(one, f"its allocation ended before it could start ({reason})")
                continue
            outcome = Outcome(
                attempt=one.attempt, status=None, ended_at=now, reason=cause, detail=reason or None
            )
            finish_attempt(self._db, self._settings, outcome, GpuUse(), now)
            if cause == "lost":
                events.record_event(self._db, one.job, now, "lost", reason)
        allocations.update(
            self._db, allocation.id, state=allocations.ENDED, ended_at=now, reason=reason or None
        )
        self.forget(allocation.id)

    def _may_have_started(
        self, allocation: Allocation, folder: str, is_certain: bool, left: list[RemoteAttempt]
    ) -> set[int]:
        """The attempts of an ended allocation that may have started."""
        has_events = os.path.exists(os.path.join(folder, EVENTS))
        if not os.path.isdir(folder) or (allocation.position and not has_events):
            return {one.attempt for one in left}  # files were removed: nothing is known
        if is_certain or self.seen(allocation).is_closed:
            return self._begun.get(allocation.id, set())
        return self._announced.get(allocation.id, set())
