"""Two ways to keep the loop's books: at once, or a little late and many rows at a time.

The daemon writes each claim before it orders the start: others read the queue, and the crash
promise rests on it. A foreground run owns its store and commits every few milliseconds anyway; what
a kill may cost is the same whether rows waited in the transaction or here. So it writes down
attempts that began and succeeded in between as one row each, which takes a third of the time.
"""

from __future__ import annotations

from stoker.core.model import Outcome, ReadyJob
from stoker.core.outcome.retry import Verdict
from stoker.store import attempts, ready_jobs
from stoker.store.attempts import Claim, JobToJudge
from stoker.store.database import Database
from stoker.store.ready_jobs import RequestGroup

_CLAIMED_JOB = (
    "UPDATE jobs SET state = ?, ready = 0, eligible_at = NULL, attempt = ?, attempts = ?"
    " WHERE id = ? AND ready = 1"
)
_CLAIMED_ATTEMPT = (
    "INSERT INTO attempts (id, job, number, devices, claim, claimed_at, boot, pid, started_at,"
    " started_mono) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DONE_JOB = (
    "UPDATE jobs SET state = 'done', ready = 0, eligible_at = NULL, attempt = ?, attempts = ?,"
    " cause = ?, ended_at = ? WHERE id = ? AND ready = 1"
)
_DONE_ATTEMPT = (
    "INSERT INTO attempts (id, job, number, devices, claim, claimed_at, boot, pid, started_at,"
    " started_mono, ended_at, status, cause, detail, user_seconds, system_seconds, max_rss_bytes)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_NOT_BEGUN = (None, None, None)


class AttemptStore:
    """Every entry at once."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def heads(self, line: RequestGroup, limit: int, clock_offset: float) -> list[ReadyJob]:
        return ready_jobs.first(self._db, line, limit, clock_offset)

    def claim(self, job: ReadyJob, claim: Claim) -> bool:
        return attempts.claim(self._db, claim)

    def record_start(
        self, attempt: int, pid: int, at: float, mono: float, pid_started: int = 0
    ) -> None:
        attempts.record_start(self._db, attempt, pid, at, mono, pid_started)

    def load_job_to_judge(self, attempt: int) -> JobToJudge | None:
        return attempts.load_job_to_judge(self._db, attempt)

    def finish(
        self, facts: JobToJudge, outcome: Outcome, verdict: Verdict, now: float,
        started: float | None,
    ) -> bool:  # fmt: skip
        return attempts.finish(self._db, facts, outcome, verdict, now, started)

    def flush(self) -> None:
        """Write down what was put off."""


class BufferedAttemptStore(AttemptStore):
    """Entries wait in memory until somebody has to read them, or the transaction ends."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._claims: dict[int, tuple[ReadyJob, Claim]] = {}
        self._begun: dict[int, tuple[int | None, float, float]] = {}
        self._done: list[tuple[tuple[object, ...], tuple[object, ...]]] = []

    def heads(self, line: RequestGroup, limit: int, clock_offset: float) -> list[ReadyJob]:
        self.flush()
        return super().heads(line, limit, clock_offset)

    def claim(self, job: ReadyJob, claim: Claim) -> bool:
        self._claims[claim.attempt] = (job, claim)
        return True

    def record_start(
        self, attempt: int, pid: int, at: float, mono: float, pid_started: int = 0
    ) -> None:
        if attempt in self._claims:  # nobody adopts jobs of a foreground run: no start time
            self._begun[attempt] = (pid or None, at, mono)
        else:
            super().record_start(attempt, pid, at, mono, pid_started)

    def load_job_to_judge(self, attempt: int) -> JobToJudge | None:
        known = self._claims.get(attempt)
        if known is None:
            return super().load_job_to_judge(attempt)
        job, claim = known
        # Nobody else writes this store, so nobody can have asked to stop it or to wait for it.
        return JobToJudge(
            job.id, claim.number, job.retries, job.restartable, False, False, job.line,
            claim.memory, job.family, job.on_oom, claim.devices, None, job.stdout, job.stderr,
            job.requeues, job.sweep,
        )  # fmt: skip

    def finish(
        self, facts: JobToJudge, outcome: Outcome, verdict: Verdict, now: float,
        started: float | None,
    ) -> bool:  # fmt: skip
        if outcome.attempt not in self._claims:
            return super().finish(facts, outcome, verdict, now, started)
        if verdict.event != "succeed" or facts.sweep is not None:
            self.flush()
            return super().finish(facts, outcome, verdict, now, started)
        claim = self._claims.pop(outcome.attempt)[1]
        pid, at, mono = self._begun.pop(outcome.attempt, _NOT_BEGUN)
        attempt = (
            *_columns(claim), pid, started if at is None else at, mono, outcome.ended_at,
            outcome.status, verdict.cause, outcome.detail, outcome.user_seconds,
            outcome.system_seconds, outcome.max_rss_bytes,
        )  # fmt: skip
        job = (claim.attempt, claim.number, verdict.cause, outcome.ended_at, claim.job)
        self._done.append((attempt, job))
        return False

    def flush(self) -> None:
        if self._done:
            self._db.executemany(_DONE_ATTEMPT, [attempt for attempt, _ in self._done])
            self._db.executemany(_DONE_JOB, [job for _, job in self._done])
            self._done.clear()
        if self._claims:
            attempts, jobs = [], []
            for _, claim in self._claims.values():
                begun = self._begun.get(claim.attempt, _NOT_BEGUN)
                attempts.append((*_columns(claim), *begun))
                state = "starting" if begun is _NOT_BEGUN else "running"
                jobs.append((state, claim.attempt, claim.number, claim.job))
            self._db.executemany(_CLAIMED_ATTEMPT, attempts)
            self._db.executemany(_CLAIMED_JOB, jobs)
            self._claims.clear()
            self._begun.clear()


def _columns(claim: Claim) -> tuple[object, ...]:
    return (*claim[:3], ",".join(map(str, claim.devices)), *claim[4:])
