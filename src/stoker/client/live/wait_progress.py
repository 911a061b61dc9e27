"""How far a set of jobs is and when it will have finished, for everything that waits for jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stoker.client.views.job import clock_words, waiting_words
from stoker.client.views.job_progress import JobProgress, eta_words, job_progress
from stoker.engine.policy.finish_forecast import Finish, Interval, Work, finish_forecast
from stoker.engine.store import job_queries, waited_jobs
from stoker.engine.store.database import Database
from stoker.engine.store.profiles import seconds_of
from stoker.record import Record
from stoker.settings import Settings
from stoker.states import ACTIVE, DONE, FINAL, WAITING
from stoker.text.durations import format_duration
from stoker.text.plurals import plural

_MAX_ACTIVE = 200  # running jobs of the set whose reports are read
_BAR = 20
_CLOCK_SECONDS = 600.0  # an end that is further away is also shown as a time of day


class WaitProgress(Record):
    """Numbers of jobs by state, and the likely end of the last one."""

    total: int
    finished: int
    unsuccessful: int  # failed, lost or cancelled; a part of `finished`
    running: int
    waiting: int  # held jobs too
    fraction: float  # of the work that is done
    finish: Finish | None = None
    now: float = 0.0
    single: str = ""  # if the set is one job: its state and progress

    def words(self) -> str:
        """One line: `[#####---------------] 12 of 40 jobs finished, 4 running, ETA 20m10s`."""
        parts = [self.single or self._counts()]
        if self.finish is not None and self.finished < self.total:
            parts.append(_finish_words(self.finish, self.now))
        filled = min(_BAR, int(_BAR * self.fraction + 1e-9))
        return f"[{'#' * filled}{'-' * (_BAR - filled)}] {', '.join(parts)}"

    def _counts(self) -> str:
        parts = [f"{self.finished} of {plural(self.total, 'job')} finished"]
        if self.unsuccessful:
            parts.append(f"{self.unsuccessful} not successful")
        if self.running:
            parts.append(f"{self.running} running")
        return ", ".join(parts)


def _finish_words(finish: Finish, now: float) -> str:
    words = eta_words(finish.seconds, is_bound=finish.is_bound)
    if finish.seconds < _CLOCK_SECONDS:
        return words
    return f"{words} ({clock_words(now + finish.seconds, now)})"


# Ids, or a function that returns them if jobs are added later.
WaitedIds = Sequence[int] | Callable[[Database], Sequence[int]]


class WaitedSet:
    """Jobs that a process waits for. `planned`: how many there will be, if more are added later."""

    def __init__(
        self,
        settings: Settings,
        ids: WaitedIds,
        planned: int | None = None,
    ) -> None:
        self._settings = settings
        self._given = ids
        self._ids: Sequence[int] = ()
        self._planned = planned or 0

    def progress(self, db: Database, now: float | None = None) -> WaitProgress:
        """Return the numbers at this moment."""
        now = time.time() if now is None else now
        self._ids = self._given(db) if callable(self._given) else self._given
        with db.reading():
            counts = job_queries.counts_of(db, list(self._ids))
            rows = job_queries.jobs(db, waited_jobs.active_jobs(db, self._ids, _MAX_ACTIVE))
        active = {row.id: job_progress(db, self._settings, row, now) for row in rows}
        finished = sum(counts.get(state, 0) for state in FINAL)
        waiting = sum(counts.get(state, 0) for state in WAITING)
        running = sum(counts.get(state, 0) for state in ACTIVE)
        removed = len(self._ids) - finished - waiting - running
        total = max(self._planned, finished + removed + waiting + running)
        parts = [known.fraction or 0.0 for known in active.values() if known is not None]
        seconds = _Durations(db, self._ids, rows, active)
        starts = self._starts(db, waiting)
        return WaitProgress(
            total=total,
            finished=finished + removed,
            unsuccessful=finished - counts.get(DONE, 0),
            running=running,
            waiting=waiting,
            fraction=min(1.0, (finished + removed + sum(parts)) / max(1, total)),
            finish=self._finish(db, seconds, starts, total - finished - removed),
            now=now,
            single=self._single(db, starts, active, now) if total == 1 else "",
        )

    def _starts(self, db: Database, waiting: int) -> dict[int, float]:
        """Seconds until the likely starts of queued jobs of the set."""
        if not waiting or not job_queries.has_known_end(db):
            return {}
        from stoker.client.views.why import likely_starts

        likely = likely_starts(db, self._settings)
        among = waited_jobs.queued_among(db, list(likely), self._ids)
        return {job: likely[job] for job in among}

    def _finish(
        self, db: Database, seconds: _Durations, starts: dict[int, float], left: int
    ) -> Finish | None:
        queued = waited_jobs.queued_work(db, self._ids)
        known: dict[tuple[int, float | None], int] = {}  # how many of them have a forecast
        starting = []
        for row in job_queries.jobs(db, list(starts)):
            duration, is_bound = seconds.of(row.profile, row.time_limit)
            starting.append(Interval(starts[row.id], duration, is_bound))
            key = (row.profile, row.time_limit)
            known[key] = known.get(key, 0) + 1
        later = []
        for work in queued:
            count = max(0, work.jobs - known.get((work.profile, work.time_limit), 0))
            later.append(Work(count, *seconds.of(work.profile, work.time_limit)))
        # Jobs that will be added, and held ones: like the others.
        rest = left - len(seconds.running) - sum(work.jobs for work in queued)
        if rest > 0 and self._planned:
            later.append(Work(rest, seconds.mean()))
        return finish_forecast(seconds.running, starting, later)

    def _single(
        self,
        db: Database,
        starts: dict[int, float],
        active: dict[int, JobProgress | None],
        now: float,
    ) -> str:
        """`job 7 running: step 120/1000 (12%), loss 0.31`, without its end."""
        if active:
            job, known = next(iter(active.items()))
            words = "" if known is None else known._replace(remaining=None).words()
            state = job_queries.job(db, job).state
            return f"job {job} {state}" + (f": {words}" if words else "")
        rows = job_queries.jobs(db, list(self._ids))
        if not rows:
            return ""
        row = rows[0]
        words = waiting_words(db, row, now)
        if row.id in starts:
            words = f"starts in {format_duration(starts[row.id])}"
        return f"job {row.id} {row.state}" + (f", {words}" if words else "")


class _Durations:
    """Durations of jobs: of their command profile, of running jobs like them, or of the set."""

    def __init__(
        self,
        db: Database,
        ids: Sequence[int],
        rows: list[job_queries.JobRow],
        active: dict[int, JobProgress | None],
    ) -> None:
        self._db = db
        self._ids = ids
        self._mean: float | None = None
        self._has_mean = False
        self._by_profile: dict[int, float | None] = {}
        likely: dict[int, list[float]] = {}
        for row in rows:
            known = active[row.id]
            if known is not None and known.remaining is not None and not known.remaining.is_bound:
                whole = known.elapsed + known.remaining.seconds
                likely.setdefault(row.profile, []).append(whole)
        self._likely = {profile: sum(some) / len(some) for profile, some in likely.items()}
        self.running = [self._interval(active[row.id], row.profile) for row in rows]

    def of(self, profile: int, limit: float | None) -> tuple[float | None, bool]:
        """Return the duration of a job, and whether it is only its time limit."""
        seconds = self._of_profile(profile)
        if seconds is None:
            seconds = self.mean()
        if seconds is None:
            return limit, limit is not None
        return (seconds if limit is None else min(seconds, limit)), False

    def mean(self) -> float | None:
        """The mean duration of the finished jobs of the set; None if there are none."""
        if not self._has_mean:
            self._has_mean = True
            self._mean = waited_jobs.mean_seconds(self._db, self._ids)
        return self._mean

    def _of_profile(self, profile: int) -> float | None:
        if profile not in self._by_profile:
            known = seconds_of(self._db, profile)
            self._by_profile[profile] = self._likely.get(profile) if known is None else known
        return self._by_profile[profile]

    def _interval(self, known: JobProgress | None, profile: int) -> Interval:
        if known is None:  # it is starting
            return Interval(0.0, *self.of(profile, None))
        if known.remaining is not None and not known.remaining.is_bound:
            return Interval(0.0, known.remaining.seconds)
        seconds = self._of_profile(profile)
        seconds = self.mean() if seconds is None else seconds
        if seconds is not None:
            left = seconds - known.elapsed
            return Interval(0.0, left if left > 0 else known.elapsed / 2)
        if known.remaining is not None:
            return Interval(0.0, known.remaining.seconds, True)
        return Interval(0.0, None)
