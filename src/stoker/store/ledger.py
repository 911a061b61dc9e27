"""What the loop records: claims, beginnings, ends. All of it inside the loop's own transaction.

Every function can be applied twice without harm, because after a crash or a full disk the loop
records the same facts again.
"""

from __future__ import annotations

from stoker.core.formats.byte_text import maybe_text, to_text, unpack_pairs, unpack_words
from stoker.core.model import Context, Device, Outcome, ReadyJob, Request
from stoker.core.outcome.retry import BACKOFF_CAP_SECONDS, Verdict
from stoker.core.profiles.gpu_memory import budget
from stoker.core.record import Record
from stoker.core.states import advance, sources
from stoker.store import request_groups, sweeps
from stoker.store.database import Database
from stoker.store.device_column import parse_devices
from stoker.store.output_columns import STDERR, STDOUT
from stoker.store.submit import satisfied

_READY_COLUMNS = (
    "j.id, j.priority, j.time_limit, j.submitted_at, f.memory, j.argv, j.shell,"
    f" j.context, j.name, j.attempts, j.grace, {STDOUT}, {STDERR}, j.keep_children, j.batch,"
    " j.batch_index, j.family, j.retries, j.restartable, j.on_oom,"
    " j.variables, j.warn, j.sweep, j.requeues"
)
# An end is legal in every active state; the claim is what makes a state active.
_ACTIVE = ", ".join(f"'{state}'" for state in sources("succeed"))


class Claim(Record):
    """The order to start an attempt, as it stands in the books."""

    attempt: int
    job: int
    number: int
    devices: tuple[int, ...]
    memory: int | None
    at: float
    boot: str


class OpenAttempt(Record):
    """An attempt without an end, as the last daemon left it."""

    attempt: int
    job: int
    number: int
    request: Request
    share: str
    family: int
    devices: tuple[int, ...]
    state: str
    boot: str
    pid: int | None
    pid_started: int | None
    started_mono: float | None
    claimed_at: float
    time_limit: float | None
    grace: float | None
    stop_requested: bool


class JobToJudge(Record):
    """What `judge` needs to know of a job."""

    job: int
    attempts: int
    retries: int
    restartable: bool
    stop_requested: bool
    has_dependants: bool  # somebody waits for its end
    line: int
    claim: int | None
    family: int
    on_oom: str | None
    devices: tuple[int, ...]
    started_at: float | None
    stdout: str | None
    stderr: str | None
    requeues: int = 0
    sweep: int | None = None


def ready_lines(db: Database) -> list[int]:
    """The lines with ready jobs, by hopping through the index, not scanning it."""
    rows = db.execute(
        "WITH RECURSIVE hop(line) AS ("
        " SELECT min(line) FROM jobs WHERE ready = 1"
        " UNION ALL SELECT (SELECT min(line) FROM jobs WHERE ready = 1 AND line > hop.line)"
        " FROM hop WHERE hop.line IS NOT NULL) SELECT line FROM hop WHERE line IS NOT NULL"
    )
    return [row[0] for row in rows]


class RequestGroup(Record):
    """The head of a line is read through this; see `read_line`."""

    id: int
    request: Request
    share: str


def read_line(db: Database, id: int) -> RequestGroup:
    return RequestGroup(id, *request_groups.read_line(db, id))


def heads(
    db: Database, line: RequestGroup, limit: int, clock_offset: float = 0.0
) -> list[ReadyJob]:
    """The first ready jobs of one line, in order. `clock_offset` is wall time less monotonic."""
    rows = db.execute(
        f"SELECT {_READY_COLUMNS} FROM jobs j LEFT JOIN families f ON f.id = j.family"
        " WHERE j.ready = 1 AND j.line = ? ORDER BY j.priority DESC, j.id LIMIT ?",
        (line.id, limit),
    )
    return [_ready_job(row, line, clock_offset) for row in rows]


def _ready_job(row: tuple[object, ...], line: RequestGroup, clock_offset: float) -> ReadyJob:
    (id, priority, limit, submitted, memory, argv, shell, context, name, attempts, grace,
     out, err, keep, batch, index, family, retries, restartable, on_oom, variables,
     warn, sweep, requeues) = row  # fmt: skip
    return ReadyJob(
        id, priority, resolve(line.request, memory), limit, line.share,  # type: ignore[arg-type]
        submitted - clock_offset, unpack_words(argv), bool(shell), context,  # type: ignore[arg-type, operator]
        maybe_text(name), attempts, grace, maybe_text(out), maybe_text(err),  # type: ignore[arg-type]
        bool(keep), batch, index, family, line.id, retries, bool(restartable), on_oom,  # type: ignore[arg-type]
        unpack_pairs(variables) if variables else (), warn, sweep, requeues,  # type: ignore[arg-type]
    )  # fmt: skip


def resolve(request: Request, learned: int | None) -> Request:
    """A request for memory as learned becomes one for bytes, once something was learned."""
    if request.is_auto and learned:
        return request._replace(memory=budget(learned))
    return request


def context(db: Database, id: int) -> Context:
    cwd, env, umask, shell = db.execute(
        "SELECT cwd, env, umask, shell FROM contexts WHERE id = ?", (id,)
    ).fetchone()
    return Context(to_text(cwd), unpack_pairs(env), umask, to_text(shell))


# INDEXED BY below is a promise to deep queues: were an index not used, the statement would fail
# instead of reading a million rows in every turn.


def release_due(db: Database, now: float) -> int:
    """Make delayed jobs ready whose time has come.

    A back-off that seems further away than any can be was written before the clock was set back
    while nobody was looking; it counts from now.
    """
    db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET eligible_at = ?1 WHERE state = 'queued'"
        " AND ready = 0 AND blockers = 0 AND attempts > 0 AND eligible_at > ?1",
        (now + BACKOFF_CAP_SECONDS,),
    )
    return db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET ready = 1 WHERE state = 'queued' AND ready = 0"
        " AND blockers = 0 AND eligible_at <= ?",
        (now,),
    ).rowcount


def next_due(db: Database) -> float | None:
    """When the next delayed job may run."""
    due = db.value(
        "SELECT min(eligible_at) FROM jobs INDEXED BY jobs_delayed"
        " WHERE state = 'queued' AND ready = 0 AND blockers = 0"
    )
    return None if due is None else float(str(due))


def shift_backoffs(db: Database, delta: float) -> None:
    """The wall clock jumped: back-offs move along, begin times that people gave do not."""
    db.execute(
        "UPDATE jobs INDEXED BY jobs_delayed SET eligible_at = eligible_at + ?"
        " WHERE state = 'queued' AND ready = 0 AND blockers = 0 AND attempts > 0",
        (delta,),
    )


def stop_requests(db: Database) -> list[tuple[int, float | None]]:
    """(job, its own grace) of active jobs that somebody wants to end."""
    rows = db.execute(
        "SELECT id, grace FROM jobs INDEXED BY jobs_stopping WHERE stop_requested IS NOT NULL"
        " AND state IN ('starting', 'running', 'stopping')"
    )
    return rows.fetchall()


def claim(db: Database, order: Claim) -> bool:
    """queued -> starting, if it still is ready; False when somebody was faster."""
    changed = db.execute(
        "UPDATE jobs SET state = 'starting', ready = 0, eligible_at = NULL, attempt = ?,"
        " attempts = ? WHERE id = ? AND ready = 1",
        (order.attempt, order.number, order.job),
    ).rowcount
    if not changed:
        return False
    db.execute(
        "INSERT INTO attempts (id, job, number, devices, claim, claimed_at, boot)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*order[:3], ",".join(map(str, order.devices)), *order[4:]),
    )
    return True


def begun(
    db: Database, attempt: int, pid: int, at: float, mono: float, pid_started: int = 0
) -> None:
    """starting -> running."""
    db.execute(
        "UPDATE attempts SET pid = ?, pid_started = ?, started_at = ?, started_mono = ?"
        " WHERE id = ?",
        (pid or None, pid_started or None, at, mono, attempt),
    )
    db.execute("UPDATE jobs SET state = 'running' WHERE attempt = ? AND state = 'starting'"
               " AND id = (SELECT job FROM attempts WHERE id = ?)", (attempt, attempt))  # fmt: skip


def stopping(db: Database, job: int) -> None:
    db.execute(
        "UPDATE jobs SET state = 'stopping' WHERE id = ? AND state IN ('starting', 'running')",
        (job,),
    )


def facts(db: Database, attempt: int) -> JobToJudge | None:
    """The job of an attempt that is its newest and has no end; else there is nothing to judge."""
    row = db.execute(
        "SELECT j.id, j.attempts, j.retries, j.restartable, j.stop_requested,"
        " EXISTS (SELECT 1 FROM dependencies d WHERE d.needs = j.id AND d.met = 0), j.line,"
        f" a.claim, j.family, j.on_oom, a.devices, a.started_at, {STDOUT}, {STDERR}, j.requeues,"
        " j.sweep FROM attempts a"
        " JOIN jobs j ON j.id = a.job AND j.attempt = a.id"
        f" WHERE a.id = ? AND j.state IN ({_ACTIVE})",
        (attempt,),
    ).fetchone()
    if row is None:
        return None
    (job, attempts, retries, restartable, stop, dependants, line, claim, family, on_oom, devices,
     started, out, err, requeues, sweep) = row  # fmt: skip
    return JobToJudge(
        job, attempts, retries, bool(restartable), stop is not None, bool(dependants), line, claim,
        family, on_oom, parse_devices(devices), started, maybe_text(out), maybe_text(err),
        requeues, sweep,
    )  # fmt: skip


def record_use(db: Database, attempt: int, use: tuple[object, ...]) -> None:
    """What an attempt did with its cards: memory, utilisation, energy."""
    db.execute(
        "UPDATE attempts SET gpu_memory = ?, gpu_use = ?, gpu_energy = ? WHERE id = ?",
        (*use[:3], attempt),
    )


def change_request(db: Database, job: int, request: Request, share: str) -> None:
    """The job asks for something else from now on (it ran out of memory)."""
    line = request_groups.line_id(db, request, share)
    db.execute("UPDATE jobs SET line = ? WHERE id = ?", (line, job))


def card_decisions(db: Database) -> list[tuple[str, bool, int | None, str | None]]:
    """(uuid, drained, slots, quarantine) of the cards about which something was decided."""
    rows = db.execute("SELECT uuid, drained, slots, quarantine FROM cards")
    return [(uuid, bool(drained), slots, why) for uuid, drained, slots, why in rows]


def finish(
    db: Database, facts: JobToJudge, outcome: Outcome, verdict: Verdict, now: float,
    started: float | None,
) -> bool:  # fmt: skip
    """Record an end; True when other jobs became ready (or this one goes back to the queue)."""
    db.execute(
        "UPDATE attempts SET ended_at = ?, status = ?, cause = ?, detail = ?, user_seconds = ?,"
        " system_seconds = ?, max_rss_bytes = ?, started_at = coalesce(started_at, ?) WHERE id = ?",
        (outcome.ended_at, outcome.status, verdict.cause, outcome.detail, outcome.user_seconds,
         outcome.system_seconds, outcome.max_rss_bytes, started, outcome.attempt),
    )  # fmt: skip
    if verdict.delay is not None:
        db.execute(
            "UPDATE jobs SET state = 'queued', ready = 0, eligible_at = ?, requeues = ?"
            f" WHERE id = ? AND attempt = ? AND state IN ({_ACTIVE})",
            (now + verdict.delay, facts.requeues + (verdict.cause == "requeue"), facts.job,
             outcome.attempt),
        )  # fmt: skip
        return True
    state = advance("running", verdict.event)
    changed = db.execute(
        "UPDATE jobs SET state = ?, cause = ?, ended_at = ?"
        f" WHERE id = ? AND attempt = ? AND state IN ({_ACTIVE})",
        (state, verdict.cause, outcome.ended_at, facts.job, outcome.attempt),
    ).rowcount
    if not changed:
        return False
    frees = facts.has_dependants and settle_dependants(db, facts.job, state, now)
    if facts.sweep is not None:
        words = outcome.detail or outcome.last_words
        why = sweeps.count_end(db, facts.sweep, state, verdict, words, facts.job)
        if why is not None:
            stop_sweep(db, facts.sweep, why, now)
            frees = True
    return frees


def stop_sweep(db: Database, sweep: int, why: str, now: float) -> int:
    """Nothing more of it starts; returns how many waiting jobs that ended."""
    sweeps.mark_stopped(db, sweep, why)
    ended = db.execute(
        "UPDATE jobs INDEXED BY jobs_by_sweep SET state = 'cancelled', ready = 0, cause = 'sweep',"
        " ended_at = ? WHERE sweep = ? AND state IN ('held', 'queued')",
        (now, sweep),
    ).rowcount
    waited_for = db.execute(
        "SELECT DISTINCT d.needs FROM dependencies d JOIN jobs j ON j.id = d.needs"
        " WHERE d.met = 0 AND j.sweep = ? AND j.state = 'cancelled'",
        (sweep,),
    ).fetchall()
    for (job,) in waited_for:
        settle_dependants(db, job, "cancelled", now)
    return ended


def unclaim(db: Database, attempt: int, now: float, why: str, delay: float = 0.0) -> None:
    """The start provably never happened: as if it had not been ordered, but for an event."""
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
    record_event(db, row[0], now, "start_undone", why)
    if db.value("SELECT stop_requested FROM jobs WHERE id = ?", (row[0],)) is not None:
        end_waiting(db, row[0], "user", now)


def end_waiting(db: Database, job: int, cause: str, now: float) -> bool:
    """held or queued -> cancelled, and what follows from it for others."""
    if not _cancel_waiting(db, job, cause, now):
        return False
    settle_dependants(db, job, "cancelled", now)
    return True


def _cancel_waiting(db: Database, job: int, cause: str, now: float) -> bool:
    return bool(
        db.execute(
            "UPDATE jobs SET state = 'cancelled', ready = 0, cause = ?, ended_at = ?"
            " WHERE id = ? AND state IN ('held', 'queued')",
            (cause, now, job),
        ).rowcount
    )


def settle_dependants(db: Database, job: int, state: str, now: float) -> bool:
    """Jobs that waited for this one become ready, or end because they never can.

    In the same transaction as the end itself: no crash can come between the two. A chain of
    thousands may end at once, so it is walked with a list, not by recursion.
    """
    ended = [(job, state)]
    had_any = False
    while ended:
        job, state = ended.pop()
        waiting = db.execute(
            "SELECT job, condition FROM dependencies WHERE needs = ? AND met = 0", (job,)
        ).fetchall()
        had_any = had_any or bool(waiting)
        for dependant, condition in waiting:
            if not satisfied(state, condition):
                if _cancel_waiting(db, dependant, "dependency", now):
                    ended.append((dependant, "cancelled"))
                continue
            db.execute(
                "UPDATE dependencies SET met = 1 WHERE job = ? AND needs = ?", (dependant, job)
            )
            db.execute(
                "UPDATE jobs SET blockers = blockers - 1, ready = (state = 'queued' AND"
                " blockers = 1 AND (eligible_at IS NULL OR eligible_at <= ?)) WHERE id = ?",
                (now, dependant),
            )
    return had_any


def open_attempts(db: Database) -> list[OpenAttempt]:
    """All attempts that the books show as alive."""
    rows = db.execute(
        "SELECT a.id, a.job, a.number, j.line, a.claim, j.family, a.devices, j.state,"
        " a.boot, a.pid, a.pid_started, a.started_mono, a.claimed_at, j.time_limit, j.grace,"
        " j.stop_requested FROM jobs j"
        " JOIN attempts a ON a.id = j.attempt"
        f" WHERE j.state IN ({_ACTIVE}) ORDER BY a.id"
    ).fetchall()
    found = []
    for (attempt, job, number, line, claim, family, devices, state, boot, pid,
         pid_started, mono, claimed, limit, grace, stop) in rows:  # fmt: skip
        request, share = request_groups.read_line(db, line)
        found.append(OpenAttempt(
            attempt, job, number, request._replace(memory=claim), share, family,
            parse_devices(devices), state, boot, pid, pid_started, mono, claimed, limit, grace,
            stop is not None,
        ))  # fmt: skip
    return found


def next_attempt(db: Database) -> int:
    """The first attempt id that was never given out."""
    row = db.execute(
        "SELECT max(coalesce((SELECT max(id) + 1 FROM attempts), 1),"
        " coalesce((SELECT value FROM meta WHERE key = 'next_attempt'), 1))"
    ).fetchone()
    return int(row[0])


def quarantine(db: Database, uuid: str, why: str) -> None:
    """The card is in trouble and not used until somebody restores it."""
    db.execute(
        "INSERT INTO cards (uuid, quarantine) VALUES (?1, ?2)"
        " ON CONFLICT (uuid) DO UPDATE SET quarantine = ?2",
        (uuid, why),
    )


def record_event(db: Database, job: int, now: float, kind: str, data: str | None = None) -> None:
    db.execute(
        "INSERT INTO events (job, at, kind, data) VALUES (?, ?, ?, ?)", (job, now, kind, data)
    )


def set_devices(db: Database, devices: tuple[Device, ...], cpu_slots: int) -> None:
    """Publish what the daemon knows of the host, for `submit`, `why` and the status page."""
    db.execute("DELETE FROM devices")
    db.executemany("INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?, ?, ?)", list(devices))
    set_meta(db, "cpu_slots", cpu_slots)


def set_meta(db: Database, key: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def is_draining(db: Database) -> bool:
    return bool(db.value("SELECT value FROM meta WHERE key = 'draining'"))


def set_refusal(db: Database, why: str | None) -> None:
    """Why the runner cannot start processes at the moment; None when it can."""
    if why is None:
        db.execute("DELETE FROM meta WHERE key = 'refusal'")
    else:
        set_meta(db, "refusal", why)


def refusal(db: Database) -> str | None:
    why = db.value("SELECT value FROM meta WHERE key = 'refusal'")
    return None if why is None else str(why)


def store_tag(db: Database) -> int:
    return int(str(db.value("SELECT value FROM meta WHERE key = 'tag'")))
