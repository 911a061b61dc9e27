"""Queries for jobs: by selector, in pages, counts, and single jobs with all details."""

from __future__ import annotations

from stoker.boot import boot_id
from stoker.engine.job_settings import JobSettings, settings_from_json
from stoker.engine.model import GROUP_PREFIX, Request
from stoker.engine.snapshot_context import moved
from stoker.engine.store.database import Database, columns, id_list
from stoker.engine.store.device_column import parse_device_numbers
from stoker.engine.store.interrupted_jobs import (
    COLUMNS,
    REBOOTED,
    STARTED_LIST,
    interrupted,
    next_state,
)
from stoker.engine.store.output_columns import expand_outputs, output_dir_in, own_node
from stoker.engine.store.request_groups import REQUEST_COLUMNS, read_request
from stoker.errors import NotFound
from stoker.record import Record
from stoker.states import ACTIVE, CANCELLED, FINAL, STARTED, STATES, WAITING
from stoker.text.byte_text import maybe_bytes, maybe_text, to_bytes, to_text, unpack_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from stoker.text.selectors import Selector

_ACTIVE = ", ".join(f"'{state}'" for state in ACTIVE)


class JobRow(Record):
    """A job with its newest attempt, for lists, details and JSON."""

    id: int
    name: str | None
    state: str
    cause: str | None
    priority: int
    argv: tuple[str, ...]
    shell: bool
    cwd: str
    submitted_at: float
    eligible_at: float | None
    blockers: int
    time_limit: float | None
    settings: JobSettings
    batch: int | None
    batch_index: int | None
    array_index: int | None  # in the array `batch`
    rerun_of: int | None
    dedupe: str | None
    stdout: str | None
    stderr: str | None
    attempts: int
    stop_requested: bool
    ended_at: float | None
    attempt: int | None
    devices: tuple[int, ...]
    pid: int | None
    started_at: float | None
    status: int | None
    detail: str | None
    user_seconds: float | None
    system_seconds: float | None
    max_rss_bytes: int | None
    attempt_cause: str | None
    claim: int | None
    cpus: float | None  # cores that its attempt claimed
    host_claim: int | None  # bytes of the host's memory that its attempt claimed
    share: str | None  # mps: its attempt runs under MPS
    gpu_memory: int | None
    gpu_use: float | None
    gpu_energy: float | None
    node: str | None  # where it runs on a backend
    node_gpus: str | None  # its GPUs there, as in CUDA_VISIBLE_DEVICES
    allocation: int | None
    paused_at: float | None  # since when Stoker keeps its processes stopped
    files_dir: str | None  # the folder of its files; None: the state folder
    output_dir: str | None  # $STOKER_OUTPUT_DIR of a trial; None: the job's own folder
    snapshot: str | None  # the copy of its code in which it runs
    snapshot_of: str | None  # the work tree that was copied
    snapshot_dir: str | None  # its folder in the copy
    preemptions: int
    asked_at: float | None  # when its newest attempt was asked to give way
    asked_for: str | None
    profile: int
    sweep: int | None
    fair_share_group: str
    request_group: int
    is_interrupted: bool  # it ran when the host was restarted; `state` is what follows
    request: Request

    @property
    def gpus(self) -> int:
        return self.request.gpus

    @property
    def group(self) -> str | None:
        """The fair-share group named by the user; None without `--group`."""
        prefix, name = (
            self.fair_share_group[: len(GROUP_PREFIX)],
            self.fair_share_group[len(GROUP_PREFIX) :],
        )
        return name if prefix == GROUP_PREFIX else None


# The SQL of each field of JobRow, and of what `_job_row` needs besides.
_OF_JOBS = (
    "id name state cause priority argv shell submitted_at eligible_at blockers time_limit"
    " settings batch batch_index array_index rerun_of dedupe stdout stderr attempts"
    " stop_requested ended_at snapshot preemptions profile"
    " sweep request_group requeues"
)
_OF_ATTEMPTS = (
    "devices pid started_at status detail user_seconds system_seconds max_rss_bytes claim cpus"
    " host_claim share gpu_memory gpu_use gpu_energy node allocation paused_at asked_at asked_for"
    " boot"
)
_COLUMNS = columns(_OF_JOBS, _OF_ATTEMPTS) | {
    "attempt": "a.id",
    "attempt_cause": "a.cause",
    "cwd": "c.cwd",
    "fair_share_group": "g.fair_share_group",
    "files_dir": "b.folder",
    "node_gpus": "a.gpus",
    "output_dir": "CASE WHEN j.sweep IS NOT NULL THEN j.variables END",
    "snapshot_dir": "s.tree",
    "snapshot_of": "s.root",
}
_SELECT = (
    f"SELECT {', '.join(_COLUMNS.values())}, {', '.join('g.' + c for c in REQUEST_COLUMNS)}"
    " FROM jobs j JOIN contexts c ON c.id = j.context"
    " JOIN request_groups g ON g.id = j.request_group"
    " LEFT JOIN attempts a ON a.id = j.attempt"
    " LEFT JOIN backends b ON b.name = g.backend"
    " LEFT JOIN snapshots s ON s.id = j.snapshot"
)


def _job_row(row: tuple) -> JobRow:  # type: ignore[type-arg]
    fields = dict(zip(_COLUMNS, row[: len(_COLUMNS)], strict=True))
    boot, requeues = fields.pop("boot"), fields.pop("requeues")
    fields["request"] = read_request(row[len(_COLUMNS) :])
    fields["settings"] = settings_from_json(fields["settings"])
    fields["is_interrupted"] = False
    if fields["state"] in STARTED:
        _follow_boot(fields, boot, requeues)
    fields["fair_share_group"] = to_text(fields["fair_share_group"])
    node = fields["node"] if fields["request"].backend else own_node()
    expand_outputs(fields, fields["id"], node)
    for key in ("name", "dedupe", "files_dir", "snapshot_of", "snapshot_dir"):
        fields[key] = maybe_text(fields[key])
    fields["output_dir"] = output_dir_in(fields["output_dir"])
    fields["argv"] = unpack_words(fields["argv"])
    fields["cwd"] = to_text(fields["cwd"])
    if fields["snapshot_of"] is not None:
        # Users know their own folder; the job runs in the same folder of the snapshot.
        tree, fields["snapshot_dir"] = fields["snapshot_dir"], fields["cwd"]
        fields["cwd"] = moved(fields["cwd"], tree, fields["snapshot_of"])
    fields["shell"] = bool(fields["shell"])
    fields["stop_requested"] = fields["stop_requested"] is not None
    fields["devices"] = parse_device_numbers(fields["devices"] or "")
    return JobRow(**fields)


def _follow_boot(fields: dict[str, Any], boot: str | None, requeues: int) -> None:
    """Replace the state of a job that ran when the host was restarted."""
    state = next_state(
        fields["state"],
        boot,
        fields["allocation"],
        fields["stop_requested"] is not None,
        fields["settings"].restartable,
        fields["attempts"] - requeues - fields["preemptions"],
    )
    if state != fields["state"]:
        cause = "user" if state == CANCELLED else "lost"
        fields.update(state=state, is_interrupted=True, attempt_cause=cause, detail=REBOOTED)


def job(db: Database, id: int) -> JobRow:
    row = db.execute(f"{_SELECT} WHERE j.id = ?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no job {id}", "`stoker ls` shows the jobs")
    return _job_row(row)


def jobs(db: Database, ids: list[int]) -> list[JobRow]:
    """Return jobs in this order; raises NotFound if one was removed."""
    return [job(db, id) for id in ids]


def jobs_in_states(
    db: Database, states: tuple[str, ...], limit: int, *, newest_first: bool = False
) -> list[JobRow]:
    """Return jobs in any of these states, ordered by id. Each state is one index scan."""
    sql = f"{_SELECT} WHERE j.state = ? ORDER BY j.id {'DESC' if newest_first else 'ASC'} LIMIT ?"
    after_boot = interrupted(db)
    stored = {before for before, after in after_boot.values() if after in states}
    with db.reading():  # otherwise a job that changes its state could appear twice or not at all
        rows = [
            _job_row(row)
            for state in dict.fromkeys((*states, *sorted(stored)))
            for row in db.execute(sql, (state, limit + len(after_boot)))
        ]
    if after_boot:
        rows = [row for row in rows if row.state in states]
    rows.sort(key=lambda row: row.id, reverse=newest_first)
    return rows[:limit]


def ahead_in_group(db: Database, row: JobRow) -> int:
    """Return how many ready jobs of the same request group come before a job."""
    return int(
        str(
            db.value(
                "SELECT count(*) FROM jobs INDEXED BY jobs_ready"
                " WHERE ready = 1 AND request_group = ?"
                " AND (priority > ? OR (priority = ? AND id < ?))",
                (row.request_group, row.priority, row.priority, row.id),
            )
        )
    )


def counts(db: Database) -> dict[str, int]:
    """Return the number of jobs by state. Scans the whole index: 40 ms for a million jobs."""
    rows = db.execute("SELECT state, count(*) FROM jobs GROUP BY state")
    return _follow_boots(db, {state: count for state, count in rows})


def counts_up_to(db: Database, limit: int) -> dict[str, int]:
    """Return the number of jobs by state, counted up to `limit`: fast for queues of any size."""
    found = {}
    for state in STATES:
        count = db.value(
            "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state = ? LIMIT ?)", (state, limit)
        )
        if count:
            found[state] = int(str(count))
    return _follow_boots(db, found)


def _follow_boots(
    db: Database, counts: dict[str, int], among: set[int] | None = None
) -> dict[str, int]:
    """Count jobs that ran when the host was restarted in the state that follows."""
    for id, (before, after) in interrupted(db).items():
        if among is not None and id not in among:
            continue
        counts[before] -= 1
        counts[after] = counts.get(after, 0) + 1
    return {state: count for state, count in counts.items() if count}


def oldest_queued(db: Database) -> float | None:
    """Return when the first queued job was submitted; None if there is none."""
    row = db.execute(
        "SELECT submitted_at FROM jobs WHERE state = 'queued' ORDER BY id LIMIT 1"
    ).fetchone()
    return None if row is None else float(row[0])


def has_any(db: Database, states: tuple[str, ...]) -> bool:
    ids = interrupted(db)
    if any(after in states for _, after in ids.values()):
        return True
    return any(
        db.value(
            "SELECT 1 FROM jobs WHERE state = ? AND id NOT IN (SELECT value FROM json_each(?))"
            " LIMIT 1",
            (state, id_list(ids)),
        )
        for state in states
    )


def select(db: Database, selector: Selector) -> list[int]:
    """Return the ids of the selected jobs.

    Raises NotFound if there are none, except for a selector of states or stars.
    """
    rows: Iterable[tuple[Any, ...]]
    if selector.starred:
        rows = db.execute("SELECT job FROM job_annotations WHERE starred = 1 ORDER BY job")
        return [row[0] for row in rows]
    if selector.array is not None:
        from stoker.engine.store.arrays import jobs_of

        rows = [(id,) for id in jobs_of(db, selector.array, selector.first or 0, selector.last)]
    elif selector.first is not None:
        rows = db.execute(
            "SELECT id FROM jobs WHERE id BETWEEN ? AND ? ORDER BY id",
            (selector.first, selector.last),
        )
    elif selector.back is not None:
        rows = db.execute("SELECT id FROM jobs ORDER BY id DESC LIMIT 1 OFFSET ?", (selector.back,))
    elif selector.states is not None:
        marks = ", ".join("?" * len(selector.states))
        rows = db.execute(
            f"SELECT id FROM jobs WHERE state IN ({marks}) ORDER BY id", selector.states
        )
        after_boot = interrupted(db)
        ids = [row[0] for row in rows if row[0] not in after_boot]
        added = [id for id, (_, after) in after_boot.items() if after in selector.states]
        return sorted([*ids, *added]) if added else ids
    elif (trial := _job_of_trial(db, selector)) is not None:
        return [trial]
    elif selector.sweep is not None:
        rows = db.execute(
            "SELECT j.id FROM jobs j JOIN sweeps s ON s.id = j.sweep WHERE s.name = ? ORDER BY 1",
            (maybe_bytes(selector.sweep),),
        )
    else:
        rows = db.execute(
            "SELECT id FROM jobs WHERE name = ?"
            " UNION SELECT job FROM tags WHERE tag = ? ORDER BY 1",
            (maybe_bytes(selector.name), maybe_bytes(selector.tag)),
        )
    ids = [row[0] for row in rows]
    if not ids:
        raise NotFound(_missing(selector), _hint(db, selector))
    return ids


def _job_of_trial(db: Database, selector: Selector) -> int | None:
    """The newest job of a trial (SWEEP/TRIAL); None for other selectors.

    All jobs of a trial have this text as their name.
    """
    sweep, slash, number = selector.text.removeprefix("sweep:").rpartition("/")
    if not slash or not (number.isascii() and number.isdigit() and len(number) < 12):
        return None
    found = db.value(
        "SELECT j.id FROM trials t JOIN sweeps s ON s.id = t.sweep JOIN jobs j ON j.id = t.job"
        " WHERE s.name = ? AND t.number = ?",
        (to_bytes(sweep), int(number)),
    )
    return None if found is None else int(str(found))


def _missing(selector: Selector) -> str:
    """`there is no job 7`, as for a job that was given by its id; a name is quoted."""
    if selector.text.isdigit():
        return f"there is no job {selector.text}"
    if selector.array is not None:
        if selector.first is None:
            return f"there is no array {selector.array}"
        if selector.first == selector.last:
            return f"there is no index {selector.first} in array {selector.array}"
    what = "is no job" if selector.first == selector.last else "are no jobs"
    return f"there {what} `{selector.text}`"


def _hint(db: Database, selector: Selector) -> str:
    name = selector.name
    if name is not None and db.value("SELECT 1 FROM sweeps WHERE name = ?", (to_bytes(name),)):
        return f"to select the jobs of the sweep, write sweep:{name}"
    return "`stoker ls` shows the jobs"


def tags(db: Database, id: int) -> list[str]:
    rows = db.execute("SELECT tag FROM tags WHERE job = ? ORDER BY tag", (id,))
    return [to_text(row[0]) for row in rows]


def dependencies(db: Database, id: int) -> list[tuple[int, str, bool]]:
    rows = db.execute(
        "SELECT needs, condition, met FROM dependencies WHERE job = ? ORDER BY needs", (id,)
    )
    return [(needs, condition, bool(met)) for needs, condition, met in rows]


class AttemptRow(Record):
    id: int
    number: int
    devices: tuple[int, ...]
    started_at: float | None
    ended_at: float | None
    status: int | None
    cause: str | None
    detail: str | None
    pid: int | None
    node: str | None
    gpus: str | None


def attempts(db: Database, id: int) -> list[AttemptRow]:
    rows = db.execute(
        "SELECT id, number, devices, started_at, ended_at, status, cause, detail, pid,"
        " node, gpus FROM attempts WHERE job = ? ORDER BY number",
        (id,),
    )
    names = AttemptRow._fields
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return [AttemptRow(**{**one, "devices": parse_device_numbers(one["devices"])}) for one in found]


def events(db: Database, id: int) -> list[tuple[float, str, str | None]]:
    return db.execute(
        "SELECT at, kind, data FROM events WHERE job = ? ORDER BY id", (id,)
    ).fetchall()


class ProfileRow(Record):
    """A command profile, for display."""

    runs: int
    seconds: float | None
    memory: int | None
    spread: float


def profile_of(db: Database, id: int) -> ProfileRow | None:
    row = db.execute(
        "SELECT runs, seconds, memory, spread FROM profiles WHERE id = ?", (id,)
    ).fetchone()
    return None if row is None else ProfileRow(*row)


def has_known_end(db: Database) -> bool:
    """Whether any running job has a time limit or a duration estimate."""
    return bool(
        db.value(
            "SELECT 1 FROM jobs j LEFT JOIN profiles p ON p.id = j.profile"
            f" WHERE j.state IN ({_ACTIVE})"
            " AND (j.time_limit IS NOT NULL OR p.seconds IS NOT NULL) LIMIT 1"
        )
    )


def is_final(db: Database, ids: list[int]) -> bool:
    """Whether all of these jobs are in a final state or were removed."""
    return not unfinished(db, ids, 1)


def unfinished(db: Database, ids: list[int], limit: int) -> list[int]:
    left = []
    after_boot = interrupted(db)
    for id in ids:
        state = db.value("SELECT state FROM jobs WHERE id = ?", (id,))
        state = after_boot[id][1] if id in after_boot else state
        if state in (*WAITING, *ACTIVE):
            left.append(id)
            if len(left) >= limit:
                break
    return left


def in_states(db: Database, ids: list[int], states: tuple[str, ...]) -> list[int]:
    """Return the jobs out of `ids` that are in one of the states."""
    marks = ", ".join("?" * len(states))
    rows = db.execute(
        "SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
        f" AND state IN ({marks}) ORDER BY id",
        (id_list(ids), *states),
    )
    return [row[0] for row in rows]


def words_of(db: Database, job: int) -> tuple[str, ...]:
    """Return the words of the command of a job."""
    row = db.execute("SELECT argv FROM jobs WHERE id = ?", (job,)).fetchone()
    return unpack_words(row[0])


def in_sweeps(db: Database, ids: Iterable[int]) -> list[int]:
    """Return the jobs out of `ids` that are trials of a sweep."""
    rows = db.execute(
        "SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND sweep IS NOT NULL",
        (id_list(ids),),
    )
    return [row[0] for row in rows]


def counts_of(db: Database, ids: list[int]) -> dict[str, int]:
    """Return the number of these jobs by state."""
    rows = db.execute(
        "SELECT state, count(*) FROM jobs WHERE id IN (SELECT value FROM json_each(?))"
        " GROUP BY state",
        (id_list(ids),),
    )
    return _follow_boots(db, {state: count for state, count in rows}, set(ids))


def ended_jobs(db: Database, states: tuple[str, ...], before: float | None) -> list[int]:
    """Return final jobs: all, or those that ended before a time."""
    marks = ", ".join("?" * len(states))
    sql = f"SELECT id FROM jobs WHERE state IN ({marks})"
    if before is None:
        return [row[0] for row in db.execute(sql, states)]
    return [row[0] for row in db.execute(f"{sql} AND ended_at < ?", (*states, before))]


def ended_among(db: Database, ids: list[int]) -> list[tuple[int, str | None]]:
    """Return (id, state) of the finished jobs among `ids` in the order of their ends.

    The state of a job that was removed is None.
    """
    marks = ", ".join("?" * len(FINAL))
    rows = db.execute(
        f"SELECT value, {COLUMNS} FROM json_each(?) LEFT JOIN jobs AS j ON j.id = value"
        f" LEFT JOIN attempts AS a ON a.id = j.attempt AND j.state IN ({STARTED_LIST})"
        f" WHERE j.state IS NULL OR j.state IN ({marks}) OR (a.allocation IS NULL AND a.boot != ?)"
        " ORDER BY a.boot IS NOT NULL, j.ended_at, value",
        (id_list(ids), *FINAL, boot_id()),
    )
    states = [(id, None if values[0] is None else next_state(*values)) for id, *values in rows]
    return [(id, state) for id, state in states if state is None or state in FINAL]
