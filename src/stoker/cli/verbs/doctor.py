"""`stoker doctor`: what is wrong with this host, and what to do about it."""

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
    "Check this host: permissions, file system, database, processes, limits, logout, devices.",
    (
        Option(
            "--repair",
            "save what is readable of a damaged database; keep its files",
        ),
        Option("--yes", "with --repair: do not ask"),
    ),
    (
        ("stoker doctor", ""),
        ("stoker doctor --json", ""),
        ("stoker doctor --repair", "the database is damaged"),
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
    yield Finding("ok", f"Python {sys.version.split()[0]} at {sys.executable}")
    if os.geteuid() == 0:
        yield Finding("warn", "you are root: jobs run with all rights", "use your own account")
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
                      "mount it for writing; nothing can be submitted or started")  # fmt: skip
    if space.f_files and not space.f_favail:
        yield Finding("bad", "the disk of the state folder has no inodes left",
                      "remove files; no job can be started")  # fmt: skip
    free = shutil.disk_usage(folder).free
    if free < _LOW_DISK:
        yield Finding("warn", f"only {format_size(free)} left on the disk of the state folder",
                      "stoker clean --older 7d")  # fmt: skip
    else:
        yield Finding("ok", f"{format_size(free)} free on its disk")


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
            yield Finding("ok", f"database sound, schema {SCHEMA_VERSION}")
        ahead = _unknown_jobs(folder, db)
        if ahead:
            yield Finding("bad", f"the database lacks records: job {_ranges(ahead)} began, and is"
                          " not in it", "stoker doctor --repair")  # fmt: skip
        with db.transaction():
            pass
    except (Error, sqlite3.Error) as error:
        users = ", ".join(map(str, _users_of(os.path.join(folder, FILE_NAME))))
        why = error.message if isinstance(error, Error) else error
        yield Finding("bad", f"the database cannot be written: {why}",
                      f"these processes have it open: {users}")  # fmt: skip
    finally:
        db.close()
    known = backups.newest(folder)
    yield Finding("ok", f"{plural(len(known), 'snapshot')} of the database")


def _unknown_jobs(folder: str, db: Database) -> tuple[int, ...]:
    """Jobs that the runner started and whose ids the database has not given out: it is too old."""
    given_out = int(str(job_queries.meta(db, "next_job") or 1))
    jobs = {one.job for one in read_journal(folder) if isinstance(one, JournalBegun)}
    return tuple(sorted(job for job in jobs if job >= given_out))


def _users_of(path: str) -> list[int]:
    """Processes of ours that have a file open."""
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
            waits = "waits" if waiting == 1 else "wait"
            yield Finding("warn", f"no daemon is running, and {plural(waiting, 'job')} {waits} for"
                          " one", "stoker daemon start")  # fmt: skip
        else:
            yield Finding("ok", "no daemon is running; the next submit starts one")
    suspended = False
    for what, pid, effect in _processes_of(folder, daemon, runner):
        if state_of(pid) == STOPPED:
            suspended = True
            yield Finding("bad", f"the {what} (pid {pid}) is suspended: {effect}",
                          f"kill -CONT {pid}")  # fmt: skip
    if daemon is None or suspended:
        return
    if not _answers(folder):
        yield Finding("bad", f"the daemon (pid {daemon}) does not answer",
                      f"kill -9 {daemon} && stoker daemon start   (jobs go on)")  # fmt: skip
    elif (problem := status.problem(folder)) is not None:
        yield Finding("bad", f"the daemon reports: {problem}",
                      "it goes on by itself when the state folder can be written")  # fmt: skip
    elif runner is None:
        yield Finding("warn", f"daemon (pid {daemon}) is alive, and has no runner yet",
                      "look again; if it stays so: stoker daemon restart")  # fmt: skip
    else:
        yield Finding("ok", f"daemon (pid {daemon}) and runner (pid {runner}) are alive")


def _processes_of(
    folder: str, daemon: int | None, runner: int | None
) -> Iterator[tuple[str, int, str]]:
    """(name, PID, what is missing while it is suspended) of all processes of the queue."""
    if daemon is not None:
        yield "daemon", daemon, "nothing is started or recorded"
    if runner is not None:
        yield "runner", runner, "no job starts, and no end is noticed"
    tracer = locks.holder(folder, TRACER_LOCK)
    if tracer is not None:
        yield "tracer", tracer, "charts have a gap"
    for pid in job_processes.children(daemon) if daemon is not None else ():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"stoker.sweep_control.sweep_driver" in words:
            yield "sweep driver", pid, "adaptive sweeps get no new trials"
        elif b"stoker.devices.nvml_process" in words:
            yield "GPU watcher", pid, "the state of the GPUs is not known"


def _answers(folder: str) -> bool:
    """Whether the daemon greets a client that connects."""
    try:
        with connect(folder, NEWS_SOCKET) as client:
            client.settimeout(_ANSWER_SECONDS)
            return bool(client.recv(1))
    except OSError:
        return locks.holder(folder, locks.DAEMON_LOCK) is None  # it left just now


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
        yield Finding("ok", "the kernel passes tags on to child processes (RLIMIT_LOCKS)")
    else:
        yield Finding("bad", "the kernel does not hand resource limits down",
                      "processes that leave their job cannot be found on this host")  # fmt: skip
    try:
        os.close(os.pidfd_open(os.getpid()))
        yield Finding("ok", "process handles work (pidfd)")
    except OSError:
        yield Finding("bad", "no process handles (pidfd)", "Linux 5.3 or newer is needed")


def _limits() -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    level = "ok" if soft >= 1024 else "warn"
    yield Finding(level, f"{soft} open files allowed", "" if level == "ok" else "ulimit -n 4096")
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if processes != resource.RLIM_INFINITY and processes < 256:
        yield Finding("warn", f"only {processes} processes allowed", "ulimit -u")


def _logout() -> Iterator[Finding]:
    """systemd may end everything of a user at logout, the daemon and jobs included."""
    if not os.path.isdir("/run/systemd/system"):
        yield Finding("ok", "no systemd: nothing ends your processes at logout")
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
        yield Finding("bad", "logout ends your jobs (KillUserProcesses=yes)",
                      "loginctl enable-linger")  # fmt: skip
    else:
        yield Finding("ok", "jobs outlive your login")


def _devices(settings: Settings) -> Iterator[Finding]:
    if not settings.devices and has_driver():
        sample = sample_once()
        if sample.cards is None:
            yield Finding("bad", f"no GPU can be used: {sample.trouble}",
                          "CPU jobs go on; GPU jobs start when the driver answers")  # fmt: skip
            return
        for card in sample.cards:
            if card.trouble is not None:
                yield Finding("bad", f"gpu {card.visible}: {card.trouble}")
    devices = find_devices(settings.devices)
    if devices:
        names = ", ".join(sorted({device.model or "GPU" for device in devices}))
        yield Finding("ok", f"{len(devices)} devices: {names}")
    else:
        yield Finding("ok", f"no GPU found; CPU jobs run {cpu_slots(settings)} at a time",
                      "STOKER_DEVICES=4 simulates four")  # fmt: skip


def _repair(settings: Settings, parsed: Parsed) -> int:
    folder = settings.state_dir
    prepare_state_dir(settings)
    try:
        lock = locks.take(folder, locks.DAEMON_LOCK)  # nobody else may use it meanwhile
    except Conflict as error:
        pid = locks.holder(folder, locks.DAEMON_LOCK)
        raise Conflict(
            error.message, "stoker daemon stop, then repair; running jobs go on"
            if pid is None or state_of(pid) != STOPPED else f"kill -9 {pid}, then repair"
        ) from None  # fmt: skip
    aside = repair.set_aside(folder)
    try:
        if _is_sound(folder, aside):
            raise Conflict("the database is sound; nothing to repair")
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
    print(f"the database in `{folder}` is damaged. What can be read of it goes into a new one,\n"
          "gaps are filled from the newest snapshot, and the damaged files stay in\n"
          f"{aside}.")  # fmt: skip
    try:
        return input("repair it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _print_repair(done: repair.Repaired, folder: str) -> None:
    print(f"the damaged files are in {done.moved_to}")
    print(f"salvaged {plural(done.salvaged, 'job')} from the damaged database")
    if done.from_snapshot:
        print(f"restored {plural(done.from_snapshot, 'job')} from the snapshot of"
              f" {views.iso(done.taken_at)}")  # fmt: skip
    if done.from_journal:
        them = "it; its name is" if done.from_journal == 1 else "them; their name is"
        print(f"{plural(done.from_journal, 'job')} began, and only that is known of {them}"
              " `record-lost`")  # fmt: skip
    if done.missing:
        print(f"not found: {plural(len(done.missing), 'job')} with the ids {_ranges(done.missing)}"
              f" (jobs that were removed are among them); logs are in {folder}/jobs")  # fmt: skip
    if not done.missing_is_known:
        print("jobs that were submitted after the last known id may be missing as well")
    if done.held:
        waits = "job that waited is held, because it" if done.held == 1 else (
            "jobs that waited are held, because they")  # fmt: skip
        print(f"{done.held} {waits} may have run since\n"
              "hint: stoker ls held, then stoker release what should run")  # fmt: skip
    print("hint: `stoker daemon start` goes on with the rest")


def _ranges(ids: tuple[int, ...]) -> str:
    """
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
    """The number on the processes of this queue's jobs, as the living runner was told it."""
    pid = locks.holder(folder, locks.RUNNER_LOCK)
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        return int(words[words.index(b"stoker.supervisor.runner") + 2])
    except (OSError, ValueError, IndexError):
        return None


def _is_sound(folder: str, aside: str) -> bool:
    """Looks at a copy, because SQLite changes what it opens. A queue that cannot be used for
    another reason (a newer schema, no permission) is not ours to repair: that raises."""
    with tempfile.TemporaryDirectory(dir=aside) as scratch:
        for suffix in ("", "-wal"):
            path = os.path.join(aside, FILE_NAME + suffix)
            if os.path.exists(path):
                shutil.copy2(path, scratch)
        db = Database(folder, sqlite3.connect(os.path.join(scratch, FILE_NAME)), read_only=True)
        try:
            version, is_sound = db.schema_version(), db.is_sound()
            if version > SCHEMA_VERSION and is_sound:
                open_database(folder).close()  # raises an error that says what is wrong
            if not is_sound or version == 0:
                return False
            return not _unknown_jobs(folder, db)
        except sqlite3.DatabaseError as error:
            if isinstance(translate(error, folder), Damaged):
                return False
            raise
        finally:
            db.close()
