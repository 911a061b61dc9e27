"""Real databases with known content, and seeded ways to damage their files.

python -m tests.engine.store.damage [SEEDS]   measures how many jobs a repair brings back
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from stoker.engine.model import Dependency
from stoker.engine.store import attempts
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.repair import backups, repair
from tests.engine.store.builders import a_spec, add

Damage = Callable[[Path, random.Random], None]


def build(folder: Path, jobs: int, has_log: bool = True) -> dict[int, tuple[bytes, str]]:
    """A queue of which a third is in the snapshot, most in the file, the newest in the log only.

    Returns command and state of every job.
    """
    db = open_database(str(folder))
    _submit(db, jobs // 3)
    for job in range(1, jobs // 6):
        _finish(db, job)
    backups.take(db)
    _submit(db, jobs // 3)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for job in range(jobs // 6, jobs // 3):
        _finish(db, job)
    _submit(db, jobs - 2 * (jobs // 3))
    known = {row[0]: (row[1], row[2]) for row in db.execute("SELECT id, argv, state FROM jobs")}
    if not has_log:
        db.close()
        return known
    # Like after a crash: the write-ahead log exists and has not been checkpointed.
    for suffix in ("", "-wal"):
        shutil.copy(folder / f"queue.db{suffix}", folder / f"copy{suffix}")
    db.close()
    for suffix in ("", "-wal"):
        (folder / f"copy{suffix}").replace(folder / f"queue.db{suffix}")
    return known


def _submit(db: Database, count: int) -> None:
    known = int(str(db.value("SELECT count(*) FROM jobs")))
    for number in range(known + 1, known + count + 1):
        after = (Dependency(number - 1, "any"),) if number % 10 == 0 else ()
        name = f"n{number}" if number % 4 == 0 else None
        add(db, a_spec(f"train --seed {number} " + "x" * (number % 90), name=name, after=after))


def _finish(db: Database, job: int) -> None:
    with db.transaction():
        attempt = attempts.next_attempt(db)
        db.execute(
            "INSERT INTO attempts (id, job, number, devices, claimed_at, started_at, boot,"
            " ended_at, status) VALUES (?, ?, 1, '0', 1.0, 1.0, 'boot', 2.0, 0)",
            (attempt, job),
        )
        db.execute(
            "UPDATE jobs SET state = 'done', ready = 0, attempts = 1, attempt = ?, ended_at = 2.0"
            " WHERE id = ?",
            (attempt, job),
        )


# -- damage --------------------------------------------------------------------------------------


def flip_bytes(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(8):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def zero_pages(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(2):
        page = chance.randrange(1, len(data) // 2048)
        data[page * 2048 : (page + 1) * 2048] = bytes(2048)
    path.write_bytes(data)


def zero_schema_page(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[:2048] = bytes(2048)
    path.write_bytes(data)


def damage_header(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for place in range(chance.randrange(1, 100)):
        data[place] = chance.randrange(256)
    path.write_bytes(data)


def truncate(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - chance.randrange(1, len(data) // 3)])


def overwrite_block(path: Path, chance: random.Random) -> None:
    """A block of the disk that came back with other content."""
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data) // 4096) * 4096
    data[place : place + 4096] = chance.randbytes(4096)[: len(data) - place]
    path.write_bytes(data)


def damage_log(path: Path, chance: random.Random) -> None:
    flip_bytes(path.with_name("queue.db-wal"), chance)


def damage_log_header(path: Path, chance: random.Random) -> None:
    log = path.with_name("queue.db-wal")
    log.write_bytes(chance.randbytes(32) + log.read_bytes()[32:])


def truncate_log(path: Path, chance: random.Random) -> None:
    truncate(path.with_name("queue.db-wal"), chance)


WAYS: tuple[Damage, ...] = (
    flip_bytes, zero_pages, zero_schema_page, damage_header, truncate, overwrite_block, damage_log,
    damage_log_header, truncate_log,
)  # fmt: skip


def measure(seeds: int, jobs: int = 300) -> None:
    """How many of the jobs are there afterwards with the command that was acknowledged."""
    with tempfile.TemporaryDirectory() as place:
        sound = [Path(place, "plain"), Path(place, "with_log")]
        for folder, has_log in zip(sound, (False, True), strict=True):
            folder.mkdir()
            known = build(folder, jobs, has_log)
        total = 0.0
        for way in WAYS:
            rates = []
            for seed in range(seeds):
                folder = Path(place, f"{way.__name__}-{seed}")
                shutil.copytree(sound[1 if "log" in way.__name__ else seed % 2], folder)
                way(folder / "queue.db", random.Random(seed))
                rates.append(rate(folder, known))
                shutil.rmtree(folder)
            mean = sum(rates) / len(rates)
            total += mean
            print(f"{way.__name__:<20} {mean:6.1%} of the jobs, at worst {min(rates):6.1%}")
        print(f"{'all':<20} {total / len(WAYS):6.1%}")


def rate(folder: Path, known: dict[int, tuple[bytes, str]]) -> float:
    repair.repair(str(folder), repair.set_aside(str(folder)), [])
    db = open_database(str(folder))
    found = {row[0]: row[1] for row in db.execute("SELECT id, argv FROM jobs")}
    db.close()
    right = sum(found.get(id) == argv for id, (argv, _) in known.items())
    return float(right) / len(known)


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
