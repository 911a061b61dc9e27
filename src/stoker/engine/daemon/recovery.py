"""Recovery after a crash of the daemon, of the runner, or of both.

The database says which attempts were claimed, the journal which began and how they ended, the
runner which are alive, and the kernel which processes belong to an attempt (job_processes.py):

    ended in the journal                      -> finished, with its exit code
    alive under the runner or without it      -> adopted
    first process exited, nothing alive       -> finished, with its exit code
    began, nothing alive, no end              -> lost
    never began                               -> back to the queue
    began, but queued in the database         -> claimed again: the database lost its last commits
"""

from __future__ import annotations

from stoker.engine.daemon.loop import Loop
from stoker.engine.daemon.queue_snapshot import running_job
from stoker.engine.model import Outcome
from stoker.engine.store import attempts
from stoker.engine.store.interrupted_jobs import REBOOTED
from stoker.engine.supervisor.journal import JournalBegun, JournalExited, JournalSpawned
from stoker.engine.supervisor.messages import AttemptStarted, Refused, RunnerEvent
from stoker.engine.supervisor.orphans import Adoption, Orphans
from stoker.engine.supervisor.runner_client import RunnerClient
from stoker.testing.failpoints import failpoint


def recover(
    loop: Loop, runner: RunnerClient, orphans: Orphans, live: list[AttemptStarted], now: float
) -> None:
    """Bring the database and the loop up to date, in one transaction."""
    records = runner.journal()
    began = {r.attempt: r for r in records if isinstance(r, JournalBegun)}
    spawned = {r.attempt: r for r in records if isinstance(r, JournalSpawned)}
    exited = {r.attempt: r.outcome for r in records if isinstance(r, JournalExited)}
    ended = {r.attempt: r for r in records if isinstance(r, (Outcome, Refused))}
    alive = {started.attempt: started for started in live}
    events: list[RunnerEvent] = []
    with loop.db.transaction():
        loop.running.clear()
        failpoint("daemon.during_recovery")
        for record in began.values():
            if record.boot == loop.host.boot:
                _restore_claim(loop, record)
        unfinished = attempts.open_attempts(loop.db)
        orphans.adopt(
            _adoption(
                loop,
                attempt,
                began.get(attempt_id),
                spawned.get(attempt_id),
                exited.get(attempt_id),
            )
            for attempt in unfinished
            if (attempt_id := attempt.attempt) not in ended
            and attempt_id not in alive
            and attempt_id not in orphans
            and attempt.boot == loop.host.boot  # no process survives a reboot
            and not _waits_for_its_begin(attempt, began.get(attempt_id))
        )
        for attempt in unfinished:
            attempt_id = attempt.attempt
            if attempt_id in ended:
                events.append(ended[attempt_id])
            elif attempt_id in alive:
                loop.running[attempt_id] = running_job(attempt, alive[attempt_id].mono)
                events += _start_events(attempt, began.get(attempt_id), alive[attempt_id].pid, now)
            elif attempt_id in orphans:
                loop.running[attempt_id] = running_job(
                    attempt, _started(attempt, began.get(attempt_id))
                )
                events += _start_events(
                    attempt, began.get(attempt_id), attempt.pid or 0, now, spawned.get(attempt_id)
                )
            elif attempt_id in exited:
                events.append(exited[attempt_id])
            elif attempt_id in began or attempt.state != "starting":
                events.append(_lost(attempt, loop.host.boot, now))
            else:
                attempts.unclaim(
                    loop.db, attempt_id, now, "the daemon ordered its start, but it never started"
                )
        loop.jobs_resumed()
    loop.receive(events)
    loop.queue_changed()
    loop.tick()
    waits_for_leftovers = any(attempt_id in orphans for attempt_id in exited)
    if not loop.has_unrecorded and not waits_for_leftovers:
        runner.forget_journal()


def _restore_claim(loop: Loop, record: JournalBegun) -> None:
    """Claim an attempt that the runner started and of which the database knows nothing.

    Only a database that lost commits, such as one with a shortened write-ahead log, has its job as
    waiting: it must not start again.
    """
    if attempts.has_begun(loop.db, record.job, record.number):
        return
    attempts.claim(
        loop.db,
        attempts.Claim(
            attempt=record.attempt,
            job=record.job,
            number=record.number,
            devices=record.devices,
            memory=None,
            at=record.at,
            boot=record.boot,
        ),
    )


def _waits_for_its_begin(attempt: attempts.OpenAttempt, record: JournalBegun | None) -> bool:
    """Whether its process, if there is one, was forked for a warm start that was not recorded.

    Such a process ends without executing anything, because its runner has died.
    """
    return attempt.settings.warm is not None and attempt.state == "starting" and record is None


def _lost(attempt: attempts.OpenAttempt, boot: str, now: float) -> Outcome:
    why = None if attempt.boot == boot else REBOOTED
    return Outcome(attempt=attempt.attempt, status=None, ended_at=now, reason="lost", detail=why)


def _started(attempt: attempts.OpenAttempt, record: JournalBegun | None) -> float:
    return attempt.started_mono or (record.mono if record is not None else 0.0)


def _adoption(
    loop: Loop,
    attempt: attempts.OpenAttempt,
    began: JournalBegun | None,
    spawned: JournalSpawned | None,
    exited: Outcome | None,
) -> Adoption:
    limit, settings = attempt.time_limit, attempt.settings
    return Adoption(
        attempt=attempt.attempt,
        pid=attempt.pid if spawned is None else spawned.pid,
        pid_started=attempt.pid_started if spawned is None else spawned.started,
        ends_by=None if limit is None else _started(attempt, began) + limit,
        grace=loop.settings.grace if settings.grace is None else settings.grace,
        exited=exited,
        activation=() if began is None and attempt.state == "starting" else settings.activation,
    )


def _start_events(
    attempt: attempts.OpenAttempt,
    record: JournalBegun | None,
    pid: int,
    now: float,
    spawned: JournalSpawned | None = None,
) -> list[RunnerEvent]:
    """The start, if it is not in the database yet: it must be before the journal is cleared."""
    if attempt.state != "starting":
        return []
    started = 0
    if spawned is not None:
        pid, started = spawned.pid, spawned.started
    if record is None:
        return [AttemptStarted(attempt.attempt, pid, now, 0.0, started)]
    return [AttemptStarted(attempt.attempt, pid, record.at, record.mono, started)]
