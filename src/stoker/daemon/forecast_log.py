"""Compares forecasts with real starts: the daemon keeps the past error of its forecasts.

A forecast is made for the first jobs of each request group, with the snapshot and the code that
`why` uses, when one of them has none yet. It is made between ticks, one decision at a time with
pauses, so it delays a start by no more than another decision would.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress

from stoker.core.policy.forecast import forecast_steps
from stoker.core.policy.forecast_error import add_error
from stoker.core.record import Record
from stoker.daemon.interfaces import Clock
from stoker.daemon.loop import Loop
from stoker.errors import Error
from stoker.store.forecast_errors import load_errors, save_errors

_INTERVAL_SECONDS = 5.0  # between two forecasts
_PAUSE_SECONDS = 0.05  # between two decisions of a forecast, at least
_PAUSE_FACTOR = 20  # a pause is this much longer than the decision before it
_MAX_JOBS = 64  # in one forecast
_MAX_PENDING = 256  # forecasts of jobs that have not started
_MIN_HORIZON = 2.0  # seconds; a job that starts at once needs no forecast


class _Prediction(Record):
    """`at`: when it was made; `start`: the predicted start. Both are monotonic."""

    at: float
    start: float


class ForecastLog:
    def __init__(self, loop: Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._pending: dict[int, _Prediction] = {}  # by job
        self._seen: set[int] = set()  # the jobs of the last forecast
        self._steps: Iterator[dict[int, float]] | None = None  # of the forecast that is being made
        self._starts: dict[int, float] = {}  # what it knows, in seconds after `_began`
        self._began = 0.0
        self._started: set[int] = set()  # jobs that started while it is being made
        self._results: list[tuple[float, float]] = []  # horizon and error, not saved yet
        self._revision = -1
        self._due_at = clock.mono() + _INTERVAL_SECONDS

    def started(self, job: int) -> None:
        """Compare the forecast of a job with its start."""
        if self._steps is not None:
            self._started.add(job)
        known = self._pending.pop(job, None)
        if known is not None:
            late = self._clock.mono() - known.start
            self._results.append((known.start - known.at, late))

    def next_deadline(self) -> float | None:
        """When to call `update` even without an event (monotonic)."""
        has_news = self._loop.has_waiting and self._loop.revision != self._revision
        is_needed = has_news or self._results or self._steps is not None
        return self._due_at if is_needed else None

    def update(self, now: float) -> None:
        """Make a part of a forecast, or save errors, if that is due; called after every tick."""
        loop = self._loop
        if now < self._due_at:
            return
        if loop.has_unrecorded:  # the disk may be full
            self._due_at = now + _INTERVAL_SECONDS
            return
        if loop.is_draining or not loop.takes_work or loop.is_paused:
            self._pending.clear()  # the starts of all jobs are delayed
            self._steps = None
        if self._steps is None:
            self._due_at = now + _INTERVAL_SECONDS
            self._save()
            if loop.revision != self._revision:
                self._revision = loop.revision
                with suppress(sqlite3.Error):  # the database is busy; the next one is soon
                    self._begin(now)
        else:
            self._continue(self._steps, now)
        if self._steps is not None:
            took = self._clock.mono() - now
            self._due_at = now + max(_PAUSE_SECONDS, _PAUSE_FACTOR * took)

    def _begin(self, now: float) -> None:
        found = self._loop.first_jobs(_MAX_JOBS)
        if found is None or found[0].draining:
            return
        snapshot, cut = found
        waiting = {job.id for job in snapshot.waiting}
        has_end = any(
            job.ends_by is not None or snapshot.estimates.of(job.profile)
            for job in snapshot.running
        )
        if has_end and not waiting <= self._pending.keys() | self._seen:
            self._seen, self._began, self._starts = waiting, now, {}
            self._started.clear()
            self._steps = forecast_steps(snapshot, cut)

    def _continue(self, steps: Iterator[dict[int, float]], now: float) -> None:
        known = next(steps, None)
        if known is not None:
            self._starts = known
            return
        self._steps = None
        self._due_at = now + _INTERVAL_SECONDS
        for job, seconds in self._starts.items():
            is_new = job not in self._pending and job not in self._started
            if is_new and seconds >= _MIN_HORIZON:
                self._pending[job] = _Prediction(self._began, self._began + seconds)
        while len(self._pending) > _MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def _save(self) -> None:
        if not self._results:
            return
        db = self._loop.db
        try:
            with db.transaction():
                errors = load_errors(db)
                for horizon, late in self._results:
                    errors = add_error(errors, horizon, late)
                save_errors(db, errors)
        except (sqlite3.Error, Error):
            return  # busy, or the disk is full; tried again later
        self._results.clear()
