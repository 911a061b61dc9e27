"""Request groups: waiting jobs that are equal for the policy."""

from __future__ import annotations

from stoker.engine.model import SWEEP_PREFIX, JobSpec, Request
from stoker.engine.profiles.command_profile import profile_key
from stoker.engine.store.database import Database
from stoker.engine.store.profiles import profile_id
from stoker.text.byte_text import (
    maybe_bytes,
    maybe_text,
    pack_words,
    to_bytes,
    to_text,
    unpack_words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The maximum number of profiles of one submit; with more, estimates are useless.
_MAX_PROFILES = 1000
REQUEST_COLUMNS = (
    "gpus", "memory", "exclusive", "ids", "prefer", "model", "min_memory", "is_auto",
    "avoid", "backend", "nodes", "options", "cpus", "host_memory", "is_auto_host", "needs", "share",
    "preemptible", "array",
)  # fmt: skip
_COLUMNS = ", ".join(REQUEST_COLUMNS)
# The number of columns in the first release, and the defaults of those added later: three for
# backends, then the others.
_FIRST_KEYS = 9
_NO_ADDED = ("", 1, b"", 0, None, 0, b"", "", 0)


class RequestGroups:
    """Finds or creates the request groups and profiles for the jobs of one submit."""

    def __init__(self, db: Database, learns: bool) -> None:
        self._db = db
        self._learns = learns
        self._groups: dict[tuple[Request, str, int], int] = {}
        self._last: tuple[Request, str, int] = (Request(gpus=-1), "", 0)
        self._last_id = 0
        self._profiles: dict[str, tuple[int, int]] = {}

    def of(self, spec: JobSpec) -> tuple[int, int]:
        """Return the ids of the job's request group and profile."""
        profile, length = self._profile(spec) if self._learns else (0, 0)
        request, fair_share_group, last_length = self._last
        if (  # the jobs of a file share these objects, and hashing them is slow
            spec.request is request
            and spec.fair_share_group is fair_share_group
            and length == last_length
        ):
            return self._last_id, profile
        key = self._last = (spec.request, spec.fair_share_group, length)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = group_id(self._db, *key)
        self._last_id = group
        return group, profile

    def _profile(self, spec: JobSpec) -> tuple[int, int]:
        key = profile_key(spec.argv, spec.shell)
        known = self._profiles.get(key)
        if known is None:
            if len(self._profiles) >= _MAX_PROFILES:
                return 0, 0
            known = self._profiles[key] = profile_id(self._db, key)
        return known


def group_id(db: Database, request: Request, fair_share_group: str, length: int = 0) -> int:
    """Return the id of a request group, which is created if it is new."""
    values = (
        request.gpus, request.memory, int(request.exclusive), pack_words(request.ids),
        pack_words(request.prefer), maybe_bytes(request.model), request.min_memory,
        int(request.is_auto), pack_words(request.avoid), request.backend, request.nodes,
        pack_words(request.options), request.cpus, request.host_memory, int(request.is_auto_host),
        pack_words(request.needs), request.share, int(request.preemptible),
        request.array, to_bytes(fair_share_group), length,
    )  # fmt: skip
    key = _key(values)
    row = db.execute("SELECT id FROM request_groups WHERE key = ?", (key,)).fetchone()
    if row is not None:
        return int(row[0])
    cursor = db.execute(
        f"INSERT INTO request_groups (key, {_COLUMNS}, fair_share_group, length)"
        f" VALUES ({', '.join('?' * (len(values) + 1))})",
        (key, *values),
    )
    return int(cursor.lastrowid or 0)


def _key(values: tuple[object, ...]) -> bytes:
    """The unique key of a group. Groups that earlier releases could store have the same key."""
    request, last = values[:_FIRST_KEYS], values[-2:]
    *added, array = values[_FIRST_KEYS:-2]
    if tuple(added[3:]) == _NO_ADDED[3:]:
        added = added[:3] if added[0] else []
    if array:
        added += [f"array {array}"]
    return repr((*request, *last, *added)).encode()


def read_request(columns: tuple[Any, ...]) -> Request:
    """Return the request with the values of REQUEST_COLUMNS."""
    (gpus, memory, exclusive, ids, prefer, model, min_memory, is_auto, avoid, backend,
     nodes, options, cpus, host_memory, is_auto_host, needs, share, preemptible, array,
     ) = columns  # fmt: skip
    return Request(
        gpus=gpus,
        memory=memory,
        exclusive=bool(exclusive),
        ids=_words(ids),
        prefer=_words(prefer),
        model=maybe_text(model),
        min_memory=min_memory,
        is_auto=bool(is_auto),
        avoid=_words(avoid),
        backend=backend,
        nodes=nodes,
        options=_words(options),
        cpus=cpus,
        host_memory=host_memory,
        is_auto_host=bool(is_auto_host),
        needs=_words(needs),
        share=share,
        preemptible=bool(preemptible),
        array=array,
    )


def _words(blob: object) -> tuple[str, ...]:
    return unpack_words(blob) if isinstance(blob, bytes) and blob else ()


def load(db: Database, id: int) -> tuple[Request, str]:
    """Return the request and the fair-share group of a request group."""
    row = db.execute(
        f"SELECT {_COLUMNS}, fair_share_group FROM request_groups WHERE id = ?", (id,)
    ).fetchone()
    return read_request(row[:-1]), to_text(row[-1])


_LIMITED = "executor:"


def limited_group(token: str, most: int) -> str:
    """Return the name of a fair-share group with a limit of running jobs; it ends in the limit."""
    return f"{_LIMITED}{token}:{most}"


def group_limits(db: Database) -> dict[str, int]:
    """Return the most running jobs of each fair-share group that has a limit.

    Groups of `limited_group` are left out if they have no ready jobs.
    """
    sweeps = db.execute("SELECT name, max_parallel FROM sweeps WHERE max_parallel IS NOT NULL")
    of_sweeps = {f"{SWEEP_PREFIX}{to_text(name)}": int(most) for name, most in sweeps}
    rows = db.execute(
        "SELECT DISTINCT fair_share_group FROM request_groups"
        " WHERE fair_share_group >= ? AND fair_share_group < ?"
        " AND EXISTS (SELECT 1 FROM jobs WHERE ready = 1 AND request_group = request_groups.id)",
        (to_bytes(_LIMITED), to_bytes(f"{_LIMITED[:-1]};")),
    )
    groups = [to_text(row[0]) for row in rows]
    found = {group: group.rpartition(":")[2] for group in groups}
    return of_sweeps | {
        group: int(most) for group, most in found.items() if most.isascii() and most.isdigit()
    }


def change_request(db: Database, job: int, request: Request, fair_share_group: str) -> None:
    """Move a job to the request group of its new request."""
    group = group_id(db, request, fair_share_group)
    db.execute("UPDATE jobs SET request_group = ? WHERE id = ?", (group, job))
