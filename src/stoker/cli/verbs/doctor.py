"""`stoker doctor`: find problems of this host and say how to fix them."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator

from stoker.cli.output import plural, print_json
from stoker.client import views
from stoker.core.fields import from_fields
from stoker.core.formats.command_line import Option, Parsed, Verb
from stoker.core.formats.durations import format_size
from stoker.core.record import Record
from stoker.daemon import status
from stoker.daemon.wake import NEWS_SOCKET
from stoker.devices.discovery import find_devices, has_driver
from stoker.devices.nvml_client import sample_once
from stoker.errors import Conflict, Damaged, Error
from stoker.settings import (
    Settings,
    check_filesystem,
    cpu_slots,
    filesystem_of,
    load_settings,
    prepare_state_dir,
)
from stoker.store import backups, job_queries, repair
from stoker.store.database import (
    FILE_NAME,
    SCHEMA_VERSION,
    Database,
    open_database,
    translate,
)
from stoker.supervisor import job_processes, locks, process_tags
from stoker.supervisor.journal import JournalBegun, read_journal
from stoker.supervisor.process_table import STOPPED, state_of
from stoker.supervisor.sockets import connect
from stoker.usage.usage_recorder import TRACER_LOCK

VERB = Verb(
    "doctor",
    "doctor [OPTIONS]",
    "Check this host: permissions, file system, database, processes, limits, logout, GPUs.",
    (
        Option(
            "--repair",
            "recover what is readable of a damaged database; its files are kept",
        ),
        Option("--yes", "with --repair: do not ask for confirmation"),
    ),
    (
        ("stoker doctor", ""),
        ("stoker doctor --json", ""),
        ("stoker doctor --repair", "after `database is damaged`"),
    ),
)
_LOW_DISK = 1 << 30
_ANSWER_SECONDS = 5.0


class Finding(Record):
    level: str  # ok, warn or bad
    what: str
    hint: str = ""


def run(parsed: Parsed) -> int:
    settings = load_settings()
    if parsed["repair"]:
        return _repair(settings, parsed)
    findings = list(examine(settings))
    if parsed["json"]:
        print_json(findings=[finding._asdict() for finding in findings])
    else:
        for finding in findings:
            print(f"{finding.level:<5} {finding.what}")
            if finding.hint:
                print(f"      hint: {finding.hint}")
    return int(any(finding.level == "bad" for finding in findings))


def examine(settings: Settings) -> Iterator[Finding]:
    """Run all checks; stops after the first if the state folder cannot be used."""
    yield Finding("ok", f"Python {sys.version.split()[0]} at {sys.executable}")
    if os.geteuid() == 0:
        yield Finding("warn", "you are root: jobs run with all privileges", "use a normal account")
    try:
        prepare_state_dir(settings)
        check_filesystem(settings)
    except Error as error:
        yield Finding("bad", error.message, error.hint or "")
        return
    folder = settings.state_dir
    yield Finding("ok", f"state folder {folder} ({filesystem_of(folder)}), private")
    yield from _disk(folder)
    yield from _database(folder)
    yield from _daemon(folder)
    yield from _processes()
    yield from _limits()
    yield from _logout()
    yield from _devices(settings)


def _disk(folder: str) -> Iterator[Finding]:
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        yield Finding("bad", f"the file system of the state folder `{folder}` is read-only",
                      "remount it writable; until then no job can be submitted")  # fmt: skip
    if space.f_files and not space.f_favail:
        yield Finding("bad", "the disk of the state folder has no inodes left",
                      "remove files; until then no job can start")  # fmt: skip
    free = shutil.disk_usage(folder).free
    if free < _LOW_DISK:
        yield Finding("warn", f"only {format_size(free)} free on the disk of the state folder",
                      "stoker clean --older 7d")  # fmt: skip
    else:
        yield Finding("ok", f"{format_size(free)} free on the disk of the state folder")


def _database(folder: str) -> Iterator[Finding]:
    try:
        db = open_database(folder, timeout=1.0)
    except Error as error:
        yield Finding("bad", error.message, error.hint or "")
        return
    try:
        problem = db.first_problem()
        if problem is not None:
            yield Finding("bad", f"the database is damaged: {problem}", "stoker doctor --repair")
        else:
            yield Finding("ok", f"database intact, schema {SCHEMA_VERSION}")
        ahead = _unknown_jobs(folder, db)
        if ahead:
            yield Finding("bad", f"the database lacks records: job {_ranges(ahead)} was started,"
                          " but is not in it", "stoker doctor --repair")  # fmt: skip
        with db.transaction():
            pass
    except (Error, sqlite3.Error) as error:
        users = ", ".join(map(str, _users_of(os.path.join(folder, FILE_NAME))))
        why = error.message if isinstance(error, Error) else error
        yield Finding("bad", f"cannot write to the database: {why}",
                      f"processes that have it open: {users}")  # fmt: skip
    finally:
        db.close()
    known = backups.newest(folder)
    yield Finding("ok", f"{plural(len(known), 'snapshot')} of the database")


def _unknown_jobs(folder: str, db: Database) -> tuple[int, ...]:
    """Jobs that the runner started but whose ids the database has not assigned: it is outdated."""
    next_id = int(str(job_queries.meta(db, "next_job") or 1))
    jobs = {one.job for one in read_journal(folder) if isinstance(one, JournalBegun)}
    return tuple(sorted(job for job in jobs if job >= next_id))


def _users_of(path: str) -> list[int]:
    """PIDs of other processes of this user that have a file open."""
    users = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                for name in os.listdir(f"/proc/{entry}/fd"):
                    if os.readlink(f"/proc/{entry}/fd/{name}") == path:
                        users.append(int(entry))
                        break
            except OSError:
                continue
    return users


def _daemon(folder: str) -> Iterator[Finding]:
    daemon = locks.holder(folder, locks.DAEMON_LOCK)
    runner = locks.holder(folder, locks.RUNNER_LOCK)
    if daemon is None:
        waiting = _waiting(folder)
        if waiting:
            jobs = "1 job is" if waiting == 1 else f"{waiting} jobs are"
            yield Finding("warn", f"no daemon is running, but {jobs} queued", "stoker daemon start")
        else:
            yield Finding("ok", "no daemon is running; the next `stoker submit` starts one")
    suspended = False
    for what, pid, effect in _processes_of(folder, daemon, runner):
        if state_of(pid) == STOPPED:
            suspended = True
            yield Finding("bad", f"the {what} (pid {pid}) is suspended: {effect}",
                          f"kill -CONT {pid}")  # fmt: skip
    if daemon is None or suspended:
        return
    if not _answers(folder):
        yield Finding("bad", f"the daemon (pid {daemon}) does not respond",
                      f"kill -9 {daemon} && stoker daemon start   (jobs continue)")  # fmt: skip
    elif (problem := status.problem(folder)) is not None:
        yield Finding("bad", f"the daemon reports: {problem}",
                      "it continues as soon as it can write to the state folder")  # fmt: skip
    elif runner is None:
        yield Finding("warn", f"daemon (pid {daemon}) is running, but has no runner yet",
                      "check again; if that does not help: stoker daemon restart")  # fmt: skip
    else:
        yield Finding("ok", f"daemon (pid {daemon}) and runner (pid {runner}) are running")


def _processes_of(
    folder: str, daemon: int | None, runner: int | None
) -> Iterator[tuple[str, int, str]]:
    """(name, PID, effect of a suspension) of all processes of the queue."""
    if daemon is not None:
        yield "daemon", daemon, "no job starts, and no result is recorded"
    if runner is not None:
        yield "runner", runner, "no job starts, and the end of no job is recorded"
    recorder = locks.holder(folder, TRACER_LOCK)
    if recorder is not None:
        yield "usage recorder", recorder, "usage charts have a gap"
    for pid in job_processes.children(daemon) if daemon is not None else ():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"stoker.sweep_control.sweep_driver" in words:
            yield "sweep driver", pid, "adaptive sweeps get no new trials"
        elif b"stoker.devices.nvml_process" in words:
            yield "GPU monitor", pid, "the state of the GPUs is unknown"


def _answers(folder: str) -> bool:
    """Whether the daemon sends its greeting to a client that connects."""
    try:
        with connect(folder, NEWS_SOCKET) as client:
            client.settimeout(_ANSWER_SECONDS)
            return bool(client.recv(1))
    except OSError:
        return locks.holder(folder, locks.DAEMON_LOCK) is None  # it has just exited


def _waiting(folder: str) -> int:
    try:
        db = open_database(folder, timeout=1.0)
    except Error:
        return 0
    try:
        return job_queries.counts(db).get("queued", 0)
    except sqlite3.Error:
        return 0
    finally:
        db.close()


def _processes() -> Iterator[Finding]:
    probe = (1 << 32) | os.getpid()
    own = process_tags.own_limits()
    process_tags.set_tag(probe)
    try:
        child = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    finally:
        process_tags.restore(own)
    try:
        tagged = process_tags.read_tag(child) == probe
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    if tagged:
        yield Finding("ok", "child processes inherit the tag of their job (RLIMIT_LOCKS)")
    else:
        yield Finding("bad", "child processes do not inherit resource limits",
                      "processes that detach from their job cannot be found")  # fmt: skip
    try:
        os.close(os.pidfd_open(os.getpid()))
        yield Finding("ok", "process file descriptors are available (pidfd)")
    except OSError:
        yield Finding(
            "bad", "no process file descriptors (pidfd)", "Linux 5.3 or newer is required"
        )


def _limits() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    level = "ok" if soft >= 1024 else "warn"
    yield Finding(level, f"limit of open files: {soft}", "" if level == "ok" else "ulimit -n 4096")
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if processes != resource.RLIM_INFINITY and processes < 256:
        yield Finding("warn", f"limit of processes: only {processes}", "ulimit -u 4096")


def _logout() -> Iterator[Finding]:
    """systemd may kill all processes of a user at logout, including the daemon and jobs."""
    if not os.path.isdir("/run/systemd/system"):
        yield Finding("ok", "no systemd: your processes are not killed at logout")
        return
    user = os.environ.get("USER", "")
    lingers = os.path.exists(f"/var/lib/systemd/linger/{user}")
    kills = False
    for path in ("/etc/systemd/logind.conf",):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                kills = any(line.strip() == "KillUserProcesses=yes" for line in file)
        except OSError:
            continue
    if kills and not lingers:
        yield Finding("bad", "systemd kills your jobs at logout (KillUserProcesses=yes)",
                      "loginctl enable-linger")  # fmt: skip
    else:
        yield Finding("ok", "jobs continue after logout")


def _devices(settings: Settings) -> Iterator[Finding]:
    if not settings.devices and has_driver():
        sample = sample_once()
        if sample.cards is None:
            yield Finding("bad", f"no GPU can be used: {sample.trouble}",
                          "CPU jobs continue; GPU jobs start when the driver responds")  # fmt: skip
            return
        for gpu in sample.cards:
            if gpu.trouble is not None:
                yield Finding("bad", f"GPU {gpu.visible}: {gpu.trouble}")
    devices = find_devices(settings.devices)
    if devices:
        names = ", ".join(sorted({device.model or "GPU" for device in devices}))
        yield Finding("ok", f"{plural(len(devices), 'GPU')}: {names}")
    else:
        yield Finding("ok", f"no GPU found; CPU jobs run {cpu_slots(settings)} at a time",
                      "STOKER_DEVICES=4 simulates four GPUs")  # fmt: skip


def _repair(settings: Settings, parsed: Parsed) -> int:
    folder = settings.state_dir
    prepare_state_dir(settings)
    try:
        lock = locks.take(folder, locks.DAEMON_LOCK)  # keeps a daemon from starting meanwhile
    except Conflict as error:
        pid = locks.holder(folder, locks.DAEMON_LOCK)
        raise Conflict(
            error.message, "run `stoker daemon stop` first; running jobs continue"
            if pid is None or state_of(pid) != STOPPED else f"run `kill -9 {pid}` first"
        ) from None  # fmt: skip
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
        from_fields(repair.JournaledStart, record._asdict())
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
    print(f"The database in `{folder}` is damaged. Readable records are copied into a new one,\n"
          "missing records come from the newest snapshot, and the damaged files are kept in\n"
          f"{aside}.")  # fmt: skip
    try:
        return input("Repair it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _print_repair(done: repair.Repaired, folder: str) -> None:
    print(f"the damaged files are in {done.moved_to}")
    print(f"recovered {plural(done.salvaged, 'job')} from the damaged database")
    if done.from_snapshot:
        print(f"restored {plural(done.from_snapshot, 'job')} from the snapshot of"
              f" {views.iso(done.taken_at)}")  # fmt: skip
    if done.from_journal:
        print(f"restored {plural(done.from_journal, 'job')} from the journal of the runner, without"
              " command; named `record-lost`")  # fmt: skip
    if done.missing:
        print(f"not found: {plural(len(done.missing), 'job')} with the ids {_ranges(done.missing)}"
              f" (some may have been removed earlier); logs are in {folder}/jobs")  # fmt: skip
    if not done.missing_is_known:
        print("jobs submitted after the last known id may be missing as well")
    if done.held:
        words = "waiting job is held, because it" if done.held == 1 else (
            "waiting jobs are held, because they")  # fmt: skip
        print(f"{done.held} {words} may have run since they were recorded\n"
              "hint: check `stoker ls held`, then `stoker release` the jobs to run")  # fmt: skip
    print("hint: `stoker daemon start` starts the other waiting jobs")


def _ranges(ids: tuple[int, ...]) -> str:
    """Job ids as text, at most 20 ranges.

    >>> _ranges((1, 2, 3, 7))
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
        return int(words[words.index(b"stoker.supervisor.runner") + 2])
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
            return not _unknown_jobs(folder, db)
        except sqlite3.DatabaseError as error:
            if isinstance(translate(error, folder), Damaged):
                return False
            raise
        finally:
            db.close()
