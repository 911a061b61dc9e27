"""Attempts: claimed, started, finished. The loop calls these functions inside its transaction.

Every function is idempotent: after a crash or a full disk, the loop records the same events again.
"""

from __future__ import annotations

from stoker.boot import boot_id
from stoker.engine.job_settings import DEFAULT_SETTINGS, JobSettings, settings_from_json
from stoker.engine.model import Outcome, Request
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import request_groups
from stoker.engine.store.database import Database, columns
from stoker.engine.store.dependencies import cancel_waiting, release_dependents
from stoker.engine.store.device_column import parse_device_numbers
from stoker.engine.store.events import record_event
from stoker.engine.store.output_columns import OUTPUT_FIELDS, expand_outputs, own_node
from stoker.features import TRIAL_ENDS, load
from stoker.record import Record
from stoker.states import ACTIVE, STARTING, SUBMITTED, advance
from stoker.text.byte_text import storable

_ACTIVE = ", ".join(f"'{state}'" for state in ACTIVE)


class Claim(Record):
    """The record of an attempt that is about to be started."""

    attempt: int
    job: int
    number: int
    devices: tuple[int, ...]
    memory: int | None
    at: float
    boot: str
    cpus: float | None = None  # cores
    host_memory: int | None = None  # bytes
    share: str = ""  # mps: it runs under MPS
    machine: int | None = None  # host and versions (engine/store/machines.py)


class OpenAttempt(Record):
    """An attempt without a recorded end, as the last daemon left it."""

    attempt: int
    job: int
    number: int
    request: Request
    fair_share_group: str
    profile: int
    devices: tuple[int, ...]
    state: str
    boot: str
    pid: int | None
    pid_started: int | None
    started_mono: float | None
    claimed_at: float
    time_limit: float | None
    settings: JobSettings
    stop_requested: bool
    cpus: float | None
    preemptions: int
    asked_at: float | None  # when it was asked to give way
    share: str


class JobToJudge(Record):
    """The fields of a job that `judge` needs."""

    job: int
    attempts: int
    settings: JobSettings
    stop_requested: bool
    has_dependents: bool  # other jobs wait for its end
    request_group: int
    claim: int | None
    profile: int
    devices: tuple[int, ...]
    started_at: float | None
    stdout: str | None
    stderr: str | None
    requeues: int = 0
    sweep: int | None = None
    preemptions: int = 0
    asked_for: str | None = None  # what it was asked to give way to
    share: str = ""  # mps: it ran under MPS


# The SQL of the fields of JobToJudge and OpenAttempt, and of what they are made of.
_TO_JUDGE = columns(
    "attempts settings stop_requested request_group profile stdout stderr requeues sweep"
    " preemptions name batch batch_index array_index",
    "claim devices started_at asked_for share allocation node",
) | {
    "job": "j.id",
    "has_dependents": "EXISTS (SELECT 1 FROM dependencies d WHERE d.needs = j.id AND d.met = 0)",
}
_OPEN = columns(
    "request_group profile state time_limit settings stop_requested preemptions",
    "job number claim devices boot pid pid_started started_mono claimed_at cpus host_claim asked_at"
    " share",
) | {"attempt": "a.id"}


def next_attempt(db: Database) -> int:
    """Return the first attempt id that was never used."""
    row = db.execute(
        "SELECT max(coalesce((SELECT max(id) + 1 FROM attempts), 1),"
        " coalesce((SELECT value FROM meta WHERE key = 'next_attempt'), 1))"
    ).fetchone()
    return int(row[0])


def claim(db: Database, claim: Claim, allocation: int | None = None) -> bool:
    """queued -> starting, or submitted if it runs in the allocation of a backend.

    Returns False if the job is no longer ready.
    """
    changed = db.execute(
        "UPDATE jobs SET state = ?, ready = 0, eligible_at = NULL, attempt = ?,"
        " attempts = ?, kept = NULL WHERE id = ? AND ready = 1",
        (STARTING if allocation is None else SUBMITTED, claim.attempt, claim.number, claim.job),
    ).rowcount
    if not changed:
        return False
    db.execute(
        "INSERT INTO attempts (id, job, number, devices, claim, claimed_at, boot, cpus, host_claim,"
        " share, machine, allocation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            claim.attempt,
            claim.job,
            claim.number,
            ",".join(map(str, claim.devices)),
            claim.memory,
            claim.at,
            claim.boot,
            claim.cpus,
            claim.host_memory,
            claim.share,
            claim.machine,
            allocation,
        ),
    )
    return True


def has_begun(db: Database, job: int, number: int) -> bool:
    """Whether the database knows this attempt of a job, or a later one, or no such job."""
    found = db.value("SELECT attempts FROM jobs WHERE id = ?", (job,))
    return found is None or int(str(found)) >= number


def record_start(
    db: Database, attempt: int, pid: int, at: float, mono: float, pid_started: int = 0
) -> None:
    """starting -> running."""
    db.execute(
        "UPDATE attempts SET pid = ?, pid_started = ?, started_at = ?, started_mono = ?"
        " WHERE id = ?",
        (pid or None, pid_started or None, at, mono, attempt),
    )
    db.execute(
        "UPDATE jobs SET state = 'running' WHERE attempt = ?"
        " AND state IN ('submitted', 'starting')"
        " AND id = (SELECT job FROM attempts WHERE id = ?)",
        (attempt, attempt),
    )


def mark_stopping(db: Database, job: int) -> None:
    db.execute(
        "UPDATE jobs SET state = 'stopping' WHERE id = ?"
        " AND state IN ('submitted', 'starting', 'running')",
        (job,),
    )


def load_job_to_judge(db: Database, attempt: int) -> JobToJudge | None:
    """Return the job of an attempt; None if the attempt is not its newest or has ended."""
    row = db.execute(
        f"SELECT {', '.join(_TO_JUDGE.values())} FROM attempts a"
        " JOIN jobs j ON j.id = a.job AND j.attempt = a.id"
        f" WHERE a.id = ? AND j.state IN ({_ACTIVE})",
        (attempt,),
    ).fetchone()
    if row is None:
        return None
    fields = dict(zip(_TO_JUDGE, row, strict=True))
    is_here = fields.pop("allocation") is None
    expand_outputs(fields, fields["job"], own_node() if is_here else fields["node"])
    for name in OUTPUT_FIELDS:
        del fields[name]
    fields["settings"] = settings_from_json(fields["settings"])
    fields["stop_requested"] = fields["stop_requested"] is not None
    fields["has_dependents"] = bool(fields["has_dependents"])
    fields["devices"] = parse_device_numbers(fields["devices"])
    return JobToJudge(**fields)


def record_gpu_use(
    db: Database, attempt: int, memory: int | None, utilization: float | None, energy: float | None
) -> None:
    """Record GPU usage: peak memory (bytes), mean utilization (percent) and energy (joules)."""
    db.execute(
        "UPDATE attempts SET gpu_memory = ?, gpu_use = ?, gpu_energy = ? WHERE id = ?",
        (memory, utilization, energy, attempt),
    )


def set_claim(db: Database, attempt: int, memory: int) -> None:
    """Record the bytes that a running attempt reserves on each GPU from now on."""
    db.execute("UPDATE attempts SET claim = ? WHERE id = ?", (memory, attempt))


def set_paused(db: Database, attempt: int, at: float | None) -> None:
    """Record since when an attempt is paused; None: it continues."""
    db.execute("UPDATE attempts SET paused_at = ? WHERE id = ?", (at, attempt))


def paused(db: Database) -> list[int]:
    """Return the attempts that are recorded as paused and have not ended."""
    rows = db.execute(
        "SELECT a.id FROM jobs j JOIN attempts a ON a.id = j.attempt"
        f" WHERE j.state IN ({_ACTIVE}) AND a.paused_at IS NOT NULL"
    )
    return [row[0] for row in rows]


def gpu_use(db: Database, job: int) -> tuple[int | None, float | None, float | None]:
    """Return memory (bytes), utilization (percent) and energy (joules) of the newest attempt."""
    row = db.execute(
        "SELECT gpu_memory, gpu_use, gpu_energy FROM attempts WHERE job = ?"
        " ORDER BY number DESC LIMIT 1",
        (job,),
    ).fetchone()
    return row or (None, None, None)


def finish(
    db: Database,
    job: JobToJudge,
    outcome: Outcome,
    verdict: Verdict,
    now: float,
    started: float | None,
) -> bool:
    """Record the end of an attempt; returns whether other jobs, or this one, may become ready."""
    if outcome.detail is not None:
        outcome = outcome._replace(detail=storable(outcome.detail))
    db.execute(
        "UPDATE attempts SET ended_at = ?, status = ?, cause = ?, detail = ?, user_seconds = ?,"
        " system_seconds = ?, max_rss_bytes = ?, started_at = coalesce(started_at, ?) WHERE id = ?",
        (
            outcome.ended_at,
            outcome.status,
            verdict.cause,
            outcome.detail or outcome.exception,
            outcome.user_seconds,
            outcome.system_seconds,
            outcome.max_rss_bytes,
            started,
            outcome.attempt,
        ),
    )
    if verdict.delay is not None:
        db.execute(
            "UPDATE jobs SET state = 'queued', ready = 0, eligible_at = ?, requeues = ?,"
            " preemptions = ?"
            f" WHERE id = ? AND attempt = ? AND state IN ({_ACTIVE})",
            (
                now + verdict.delay,
                job.requeues + (not verdict.is_counted),
                job.preemptions + (verdict.cause == "preempted" and job.asked_for is not None),
                job.job,
                outcome.attempt,
            ),
        )
        return True
    state = advance("running", verdict.event)
    changed = db.execute(
        "UPDATE jobs SET state = ?, cause = ?, ended_at = ?"
        f" WHERE id = ? AND attempt = ? AND state IN ({_ACTIVE})",
        (state, verdict.cause, outcome.ended_at, job.job, outcome.attempt),
    ).rowcount
    if not changed:
        return False
    frees = job.has_dependents and release_dependents(db, job.job, state, now)
    if job.sweep is not None:
        evidence = outcome.detail or outcome.last_error
        for row in TRIAL_ENDS.values():
            frees |= load(row).trial_ended(db, job, state, verdict, evidence, now)
    return frees


def unclaim(db: Database, attempt: int, now: float, why: str | None, delay: float = 0.0) -> None:
    """Undo a claim whose process was provably never started; record an event with the reason."""
    row = db.execute("SELECT job, number FROM attempts WHERE id = ?", (attempt,)).fetchone()
    if row is None:
        return
    db.execute("DELETE FROM attempts WHERE id = ?", (attempt,))
    db.execute(
        f"UPDATE jobs SET state = 'queued', ready = ?, eligible_at = ?, attempts = ?, attempt = ("
        "SELECT max(id) FROM attempts WHERE job = jobs.id)"
        f" WHERE id = ? AND attempt = ? AND state IN ({_ACTIVE})",
        (int(not delay), now + delay if delay else None, row[1] - 1, row[0], attempt),
    )
    if why is not None:
        record_event(db, row[0], now, "start_undone", why)
    if db.value("SELECT stop_requested FROM jobs WHERE id = ?", (row[0],)) is not None:
        cancel_waiting(db, row[0], "user", now)


def open_attempts(db: Database, *, of_this_boot: bool = False) -> list[OpenAttempt]:
    """Return all attempts on this host that the database shows as active.

    `of_this_boot`: without those that a restart of the host has ended.
    """
    rows = db.execute(
        f"SELECT {', '.join(_OPEN.values())} FROM jobs j JOIN attempts a ON a.id = j.attempt"
        f" WHERE j.state IN ({_ACTIVE}) AND a.allocation IS NULL ORDER BY a.id"
    ).fetchall()
    found = []
    for row in rows:
        fields = dict(zip(_OPEN, row, strict=True))
        if of_this_boot and fields["boot"] != boot_id():
            continue
        request, group = request_groups.load(db, fields.pop("request_group"))
        profile = fields["profile"] if request.is_auto else 0
        fields["request"] = request._replace(
            memory=fields.pop("claim"), host_memory=fields.pop("host_claim"), profile=profile
        )
        fields["fair_share_group"] = group
        fields["devices"] = parse_device_numbers(fields["devices"])
        fields["settings"] = settings_from_json(fields["settings"])
        fields["stop_requested"] = fields["stop_requested"] is not None
        found.append(OpenAttempt(**fields))
    return found


def ask_to_give_way(db: Database, attempt: int, job: int, now: float, to: str) -> None:
    """Record that an attempt is asked to make room, `to` what in words."""
    db.execute(
        "UPDATE attempts SET asked_at = ?, asked_for = ? WHERE id = ? AND asked_at IS NULL",
        (now, to, attempt),
    )
    record_event(db, job, now, "asked_to_give_way", f"to {to}")


def settings_of_job(db: Database, job: int) -> JobSettings:
    row = db.execute("SELECT settings FROM jobs WHERE id = ?", (job,)).fetchone()
    return DEFAULT_SETTINGS if row is None else settings_from_json(row[0])


def keep_devices(db: Database, job: int, devices: tuple[int, ...]) -> None:
    """Keep devices, which are being vacated, for a waiting job; none: do not keep any."""
    text = ",".join(map(str, devices)) or None
    db.execute("UPDATE jobs SET kept = ? WHERE id = ? AND state = 'queued'", (text, job))


def stop_requests(db: Database) -> list[tuple[int, float | None]]:
    """Return (job, grace period of the job) of active jobs that a user wants to stop."""
    rows = db.execute(
        "SELECT id, json_extract(settings, '$.grace') FROM jobs INDEXED BY jobs_stopping"
        f" WHERE stop_requested IS NOT NULL AND state IN ({_ACTIVE})"
    )
    return rows.fetchall()
