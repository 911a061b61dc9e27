"""Command profiles: durations and GPU memory of earlier attempts."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.profiles.estimates import Estimate, Estimates, length_class, update_estimate
from stoker.engine.store.database import Database
from stoker.text.byte_text import to_bytes, to_text

_ESTIMATE = "seconds, spread, runs"
_MAX_MODULES = 400


class Profiles:
    """A cache of estimates by profile id.

    Call `changed` after a change of a profile, and `forget` after changes by other processes.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.forget()

    def forget(self) -> None:
        self._read: set[int] = {0}
        self._known: dict[int, Estimate] = {}
        self._speeds: dict[int, dict[int, float]] = {}
        self._typical: float | None = None

    def changed(self, id: int) -> None:
        """Read this profile again when it is needed next."""
        self._read.discard(id)
        self._typical = None

    def estimates(self, ids: Iterable[int]) -> Estimates:
        """Return the estimates of these profiles, and a typical duration for unknown ones."""
        has_unknown = False
        for id in ids:
            if id not in self._read:
                self._read.add(id)
                estimate = _estimate(self._db, id)
                if estimate is not None:
                    self._known[id] = estimate
                speeds = shared_speeds(self._db, id)
                if speeds:
                    self._speeds[id] = speeds
            has_unknown = has_unknown or id not in self._known
        if self._typical is None and has_unknown:
            self._typical = typical_seconds(self._db)
        return Estimates(self._known, self._typical or 0.0, self._speeds)


def _estimate(db: Database, id: int) -> Estimate | None:
    row = db.execute(f"SELECT {_ESTIMATE} FROM profiles WHERE id = ?", (id,)).fetchone()
    return None if row is None or row[0] is None else Estimate(row[0], row[1], max(1, row[2]))


def seconds_of(db: Database, id: int) -> float | None:
    """Return the expected duration of jobs with this profile; None if it is unknown."""
    known = _estimate(db, id) if id else None
    return None if known is None else known.seconds


def measured_memory(db: Database, job: int) -> int | None:
    """Return the GPU memory that jobs like this one use; None if fewer than three were measured."""
    found = db.value(
        "SELECT p.memory FROM jobs j JOIN profiles p ON p.id = j.profile"
        " WHERE j.id = ? AND p.runs >= 3",
        (job,),
    )
    return None if found is None else int(str(found))


def typical_seconds(db: Database) -> float:
    """Return the mean duration of the newest profiles, as the estimate for unknown ones."""
    return float(
        str(
            db.value(
                "SELECT avg(seconds) FROM (SELECT seconds FROM profiles ORDER BY id DESC LIMIT 100)"
            )
            or 0.0
        )
    )


def profile_id(db: Database, key: str) -> tuple[int, int]:
    """Return id and length class of the profile with this key, which is created if it is new."""
    data = to_bytes(key)
    row = db.execute(f"SELECT id, {_ESTIMATE} FROM profiles WHERE key = ?", (data,)).fetchone()
    if row is None:
        return int(db.execute("INSERT INTO profiles (key) VALUES (?)", (data,)).lastrowid or 0), 0
    known = None if row[1] is None else Estimate(row[1], row[2], max(1, row[3]))
    return int(row[0]), length_class(known)


def shared_speeds(db: Database, profile: int) -> dict[int, float]:
    """Return the speed of one job of a profile by the number of such jobs on its GPU."""
    rows = db.execute("SELECT jobs, speed FROM shared_speeds WHERE profile = ?", (profile,))
    return dict(rows.fetchall())


def learn_speed(db: Database, profile: int, jobs: int, speed: float) -> None:
    """Record the speed of one of `jobs` jobs of a profile on one GPU."""
    from stoker.engine.profiles.shared_speed import update_speed

    row = db.execute(
        "SELECT speed, runs FROM shared_speeds WHERE profile = ? AND jobs = ?", (profile, jobs)
    ).fetchone()
    known, runs = row or (None, 0)
    db.execute(
        "INSERT OR REPLACE INTO shared_speeds (profile, jobs, runs, speed) VALUES (?, ?, ?, ?)",
        (profile, jobs, runs + 1, update_speed(known, runs, speed)),
    )


def learn_live(db: Database, profile: int, peak: int, provisional: int | None) -> bool:
    """Update a profile from a running job; returns whether `peak` is its first peak.

    `provisional`: bytes to reserve while no peak is known; None: `peak` is final.
    """
    known = db.value("SELECT memory FROM profiles WHERE id = ?", (profile,))
    if known is None and provisional is not None:
        db.execute(
            "UPDATE profiles SET provisional_memory = max(coalesce(provisional_memory, 0), ?)"
            " WHERE id = ?",
            (provisional, profile),
        )
        return False
    db.execute(
        "UPDATE profiles SET memory = max(coalesce(memory, 0), ?) WHERE id = ?", (peak, profile)
    )
    return known is None


def learn(
    db: Database,
    profile: int,
    seconds: float | None,
    memory: int | None,
    *,
    is_short: bool = False,
    host_memory: int = 0,
) -> bool:
    """Update a profile after an attempt; returns whether its estimate of GPU memory changed.

    `is_short`: the attempt ran out of GPU memory, so `memory` is less than it needs.
    """
    if not profile:
        return False
    if seconds is not None:
        new = update_estimate(_estimate(db, profile), seconds)
        db.execute(
            "UPDATE profiles SET runs = runs + 1, seconds = ?, spread = ?,"
            " host_memory = nullif(max(coalesce(host_memory, 0), ?), 0) WHERE id = ?",
            (new.seconds, new.spread, host_memory, profile),
        )
    if memory is None:
        return False
    known = db.value("SELECT memory FROM profiles WHERE id = ?", (profile,))
    db.execute(
        "UPDATE profiles SET memory_runs = memory_runs + ?, memory = max(coalesce(memory, 0), ?)"
        " WHERE id = ?",
        (int(not is_short), memory, profile),
    )
    return known is None or memory > int(str(known))


def modules_of(db: Database, profile: int) -> str:
    """Return the modules that earlier attempts imported, by comma, for warm starts."""
    known = db.value("SELECT modules FROM profiles WHERE id = ?", (profile,)) if profile else None
    return to_text(known) if isinstance(known, bytes) else ""


def learn_modules(db: Database, profile: int, modules: str) -> None:
    """Add the modules that an attempt imported. They are never removed, so that attempts which
    import some of them in turn share one fork server; those that are missing are skipped there."""
    if not profile:
        return
    names = [*modules_of(db, profile).split(","), *modules.split(",")]
    joined = ",".join(list(dict.fromkeys(filter(None, names)))[:_MAX_MODULES])
    db.execute("UPDATE profiles SET modules = ? WHERE id = ?", (to_bytes(joined), profile))
