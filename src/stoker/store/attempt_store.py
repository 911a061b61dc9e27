"""How the loop writes attempts: at once (`AttemptStore`) or in batches (`BufferedAttemptStore`).

The daemon writes each claim before the job starts: other processes read the database, and crash
recovery depends on it. A foreground run is the only user of its database and commits every few
milliseconds anyway, so buffered rows are at no more risk than an open transaction. It writes an
attempt that started and succeeded between two flushes as one row, in a third of the time.
"""

from __future__ import annotations

from stoker.core.model import Outcome, ReadyJob
from stoker.core.outcome.retry import Verdict
from stoker.store import attempts, ready_jobs
from stoker.store.attempts import CLAIM_COLUMNS, Claim, JobToJudge, claim_columns
from stoker.store.database import Database
from stoker.store.ready_jobs import RequestGroup

_CLAIMED_JOB = (
    "UPDATE jobs SET state = ?, ready = 0, eligible_at = NULL, attempt = ?, attempts = ?"
    " WHERE id = ? AND ready = 1"
)
_CLAIMED_ATTEMPT = (
    f"INSERT INTO attempts ({CLAIM_COLUMNS}, pid, started_at,"
    " started_mono) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DONE_JOB = (
    "UPDATE jobs SET state = 'done', ready = 0, eligible_at = NULL, attempt = ?, attempts = ?,"
    " cause = ?, ended_at = ? WHERE id = ? AND ready = 1"
)
_DONE_ATTEMPT = (
    f"INSERT INTO attempts ({CLAIM_COLUMNS}, pid, started_at,"
    " started_mono, ended_at, status, cause, detail, user_seconds, system_seconds, max_rss_bytes)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_NOT_STARTED = (None, None, None)


class AttemptStore:
    """Writes every change at once."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def first_jobs(self, group: RequestGroup, limit: int, clock_offset: float) -> list[ReadyJob]:
        """Return the first ready jobs of a request group."""
        return ready_jobs.first(self._db, group, limit, clock_offset)

    def claim(self, job: ReadyJob, claim: Claim) -> bool:
        return attempts.claim(self._db, claim)

    def record_start(
        self, attempt: int, pid: int, at: float, mono: float, pid_started: int = 0
    ) -> None:
        attempts.record_start(self._db, attempt, pid, at, mono, pid_started)

    def load_job_to_judge(self, attempt: int) -> JobToJudge | None:
        return attempts.load_job_to_judge(self._db, attempt)

    def finish(
        self,
        job: JobToJudge,
        outcome: Outcome,
        verdict: Verdict,
        now: float,
        started: float | None,
    ) -> bool:
        return attempts.finish(self._db, job, outcome, verdict, now, started)

    def flush(self) -> None:
        """Write buffered changes."""


class BufferedAttemptStore(AttemptStore):
    """Keeps changes in memory until they are read or the transaction ends."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._claims: dict[int, tuple[ReadyJob, Claim]] = {}
        self._started: dict[int, tuple[int | None, float, float]] = {}
        self._done: list[tuple[tuple[object, ...], tuple[object, ...]]] = []

    def first_jobs(self, group: RequestGroup, limit: int, clock_offset: float) -> list[ReadyJob]:
        self.flush()
        return super().first_jobs(group, limit, clock_offset)

    def claim(self, job: ReadyJob, claim: Claim) -> bool:
        self._claims[claim.attempt] = (job, claim)
        return True

    def record_start(
        self, attempt: int, pid: int, at: float, mono: float, pid_started: int = 0
    ) -> None:
        # `pid_started` is only needed to adopt jobs, and jobs of a foreground run are not adopted.
        if attempt in self._claims:
            self._started[attempt] = (pid or None, at, mono)
        else:
            super().record_start(attempt, pid, at, mono, pid_started)

    def load_job_to_judge(self, attempt: int) -> JobToJudge | None:
        known = self._claims.get(attempt)
        if known is None:
            return super().load_job_to_judge(attempt)
        job, claim = known
        return JobToJudge(
            job=job.id,
            attempts=claim.number,
            retries=job.retries,
            restartable=job.restartable,
            # No other process writes this database, so there are no stop requests or dependents.
            stop_requested=False,
            has_dependents=False,
            request_group=job.request_group,
            claim=claim.memory,
            profile=job.profile,
            on_oom=job.on_oom,
            devices=claim.devices,
            started_at=None,
            stdout=job.stdout,
            stderr=job.stderr,
            requeues=job.requeues,
            sweep=job.sweep,
            preemptions=0,  # jobs of a foreground run are not preemptible
            asked_for=None,
            share=claim.share,
            activation=job.activation,
        )

    def finish(
        self,
        job: JobToJudge,
        outcome: Outcome,
        verdict: Verdict,
        now: float,
        started: float | None,
    ) -> bool:
        if outcome.attempt not in self._claims:
            return super().finish(job, outcome, verdict, now, started)
        if verdict.event != "succeed" or job.sweep is not None:
            self.flush()
            return super().finish(job, outcome, verdict, now, started)
        claim = self._claims.pop(outcome.attempt)[1]
        pid, at, mono = self._started.pop(outcome.attempt, _NOT_STARTED)
        attempt = (
            *claim_columns(claim),
            pid,
            started if at is None else at,
            mono,
            outcome.ended_at,
            outcome.status,
            verdict.cause,
            outcome.detail,
            outcome.user_seconds,
            outcome.system_seconds,
            outcome.max_rss_bytes,
        )
        columns = (claim.attempt, claim.number, verdict.cause, outcome.ended_at, claim.job)
        self._done.append((attempt, columns))
        return False

    def flush(self) -> None:
        if self._done:
            self._db.executemany(_DONE_ATTEMPT, [attempt for attempt, _ in self._done])
            self._db.executemany(_DONE_JOB, [job for _, job in self._done])
            self._done.clear()
        if self._claims:
            rows, jobs = [], []
            for _, claim in self._claims.values():
                started = self._started.get(claim.attempt, _NOT_STARTED)
                rows.append((*claim_columns(claim), *started))
                state = "starting" if started is _NOT_STARTED else "running"
                jobs.append((state, claim.attempt, claim.number, claim.job))
            self._db.executemany(_CLAIMED_ATTEMPT, rows)
            self._db.executemany(_CLAIMED_JOB, jobs)
            self._claims.clear()
            self._started.clear()
