"""`stoker doctor --repair`: rebuild a damaged database and report what was recovered."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile

from stoker.cli.output import plural, print_json
from stoker.client.views import job as views
from stoker.engine.store import meta
from stoker.engine.store.database import (
    FILE_NAME,
    SCHEMA_VERSION,
    Database,
    open_database,
    translate,
)
from stoker.engine.store.repair import repair
from stoker.engine.store.repair.rebuild import JournaledStart
from stoker.engine.supervisor import locks
from stoker.engine.supervisor.journal import JournalBegun, read_journal
from stoker.engine.supervisor.process_table import STOPPED, process_state
from stoker.errors import Conflict, Damaged
from stoker.fields import from_fields
from stoker.settings import Settings, prepare_state_dir
from stoker.text.command_line import Parsed


def repair_database(settings: Settings, parsed: Parsed) -> int:
    """Rebuild a damaged database from its readable records, the newest snapshot and the journal."""
    folder = settings.state_dir
    prepare_state_dir(settings)
    try:
        lock = locks.take(folder, locks.DAEMON_LOCK)  # keeps a daemon from starting meanwhile
    except Conflict:
        pid = locks.holder(folder, locks.DAEMON_LOCK)
        raise Conflict(
            f"stop the daemon (pid {pid}) before a repair",
            "stoker daemon stop (running jobs continue)"
            if pid is None or process_state(pid) != STOPPED
            else f"kill -9 {pid}",
        ) from None
    aside = repair.set_aside(folder)
    try:
        if _is_sound(folder, aside):
            raise Conflict("the database is intact; there is nothing to repair")
        if not parsed["yes"] and sys.stdin.isatty() and not _confirmed(folder, aside):
            raise Conflict("nothing was changed")
    except BaseException:
        shutil.rmtree(aside)
        os.close(lock)
        raise
    began = [
        from_fields(JournaledStart, record._asdict())
        for record in read_journal(folder)
        if isinstance(record, JournalBegun)
    ]
    done = repair.repair(folder, aside, began, _tag_of_runner(folder))
    os.close(lock)
    if parsed["json"]:
        print_json(**{**done._asdict(), "taken_at": views.iso(done.taken_at)})
        return 0
    _print_repair(done, folder)
    return 0


def _confirmed(folder: str, aside: str) -> bool:
    print(
        f"The database in `{folder}` is damaged. Readable records are copied into a new one,\n"
        "missing records come from the newest snapshot, and the damaged files are kept in\n"
        f"{aside}."
    )
    try:
        return input("Repair it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _print_repair(done: repair.Repaired, folder: str) -> None:
    print(f"the damaged files are in {done.moved_to}")
    print(f"recovered {plural(done.salvaged, 'job')} from the damaged database")
    if done.from_snapshot:
        print(
            f"restored {plural(done.from_snapshot, 'job')} from the snapshot of"
            f" {views.iso(done.taken_at)}"
        )
    if done.from_journal:
        print(
            f"restored {plural(done.from_journal, 'job')} from the journal of the runner, without"
            " command; named `record-lost`"
        )
    if done.missing:
        ids = id_ranges(done.missing)
        print(
            f"not found: {plural(len(done.missing), 'job')} with the ids {ids}"
            f" (some may have been removed earlier); logs are in {folder}/jobs"
        )
    if not done.missing_is_known:
        print("jobs submitted after the last known id may be missing as well")
    if done.held:
        words = (
            "waiting job is held, because it"
            if done.held == 1
            else ("waiting jobs are held, because each")
        )
        print(
            f"{done.held} {words} may have run since its record was written, or part of the"
            " record is lost\n"
            "hint: `stoker show` says which; `stoker release` the jobs to run"
        )
    print("hint: `stoker daemon start` starts the other waiting jobs")


def id_ranges(ids: tuple[int, ...]) -> str:
    """Job ids as text, at most 20 ranges.

    >>> id_ranges((1, 2, 3, 7))
    '1-3, 7'
    """
    parts: list[list[int]] = []
    for id in ids:
        if parts and parts[-1][1] == id - 1:
            parts[-1][1] = id
        else:
            parts.append([id, id])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in parts[:20]]
    return ", ".join([*shown, *(["..."] if len(parts) > 20 else [])])


def _tag_of_runner(folder: str) -> int | None:
    """The tag base of this queue, from the command line of the running runner; None without one."""
    pid = locks.holder(folder, locks.RUNNER_LOCK)
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        return int(words[words.index(b"stoker.engine.supervisor.runner") + 2])
    except (OSError, ValueError, IndexError):
        return None


def _is_sound(folder: str, aside: str) -> bool:
    """Whether the database needs no repair. Checks a copy, because SQLite changes files it opens.

    Raises an error if the queue is unusable for another reason: a newer schema, no permission.
    """
    with tempfile.TemporaryDirectory(dir=aside) as scratch:
        for suffix in ("", "-wal"):
            path = os.path.join(aside, FILE_NAME + suffix)
            if os.path.exists(path):
                shutil.copy2(path, scratch)
        db = Database(folder, sqlite3.connect(os.path.join(scratch, FILE_NAME)), read_only=True)
        try:
            version, is_sound = db.schema_version(), db.is_sound()
            if version > SCHEMA_VERSION and is_sound:
                open_database(folder).close()  # raises the error that explains it
            if not is_sound or version == 0:
                return False
            return not unknown_jobs(folder, db)
        except sqlite3.DatabaseError as error:
            if isinstance(translate(error, folder), Damaged):
                return False
            raise
        finally:
            db.close()


def unknown_jobs(folder: str, db: Database) -> tuple[int, ...]:
    """Jobs that the runner started but whose ids the database has not assigned: it is outdated."""
    next_id = int(str(meta.get_meta(db, "next_job") or 1))
    jobs = {one.job for one in read_journal(folder) if isinstance(one, JournalBegun)}
    return tuple(sorted(job for job in jobs if job >= next_id))
