"""`stoker doctor`: what is wrong with this host, and what to do about it."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import sys
from collections.abc import Iterator

from stoker import board
from stoker.cli.options import Option, Parsed, Verb
from stoker.cli.output import plural, print_json
from stoker.core.durations import format_size
from stoker.core.record import Record
from stoker.daemon.wake import NEWS_SOCKET
from stoker.devices.probe import find_devices, has_driver
from stoker.devices.watch import sample_once
from stoker.errors import Conflict, Damaged, Error
from stoker.settings import (
    Settings,
    check_filesystem,
    cpu_slots,
    filesystem_of,
    load_settings,
    prepare_state_dir,
)
from stoker.store import find, snapshots
from stoker.store.database import FILE_NAME, SCHEMA_VERSION, open_database, translate
from stoker.supervisor import locks, process_tags
from stoker.supervisor.process_state import STOPPED, state_of
from stoker.supervisor.sockets import connect
from stoker.tracer import TRACER_LOCK

VERBS = {
    "doctor": Verb(
        "doctor",
        "doctor [OPTIONS]",
        "Check this host: permissions, file system, database, processes, limits, logout, devices.",
        (Option("--repair", "move a damaged database aside, restore the newest snapshot"),),
        (("stoker doctor", ""), ("stoker doctor --json", "")),
    )
}
_LOW_DISK = 1 << 30
_ANSWER_SECONDS = 5.0


class Finding(Record):
    level: str  # ok, warn or bad
    what: str
    hint: str = ""


def run(name: str, parsed: Parsed) -> int:
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
        check = str(db.value("PRAGMA quick_check(1)"))
        if check != "ok":
            yield Finding("bad", f"the database is damaged: {check}", "stoker doctor --repair")
        else:
            yield Finding("ok", f"database sound, schema {SCHEMA_VERSION}")
        with db.transaction():
            pass
    except (Error, sqlite3.Error) as error:
        users = ", ".join(map(str, _users_of(os.path.join(folder, FILE_NAME))))
        why = error.message if isinstance(error, Error) else error
        yield Finding("bad", f"the database cannot be written: {why}",
                      f"these processes have it open: {users}")  # fmt: skip
    finally:
        db.close()
    known = snapshots.newest(folder)
    yield Finding("ok", f"{plural(len(known), 'snapshot')} of the database")


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
    for pid in members.children(daemon) if daemon is not None else ():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"stoker.driver" in words:
            yield "sweep driver", pid, "adaptive sweeps get no new trials"
        elif b"stoker.devices.watcher" in words:
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
        return find.counts(db).get("queued", 0)
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
        yield Finding("ok", "the kernel hands tags down to processes (RLIMIT_LOCKS)")
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
        raise Conflict(error.message, f"kill {pid}, then repair; running jobs go on") from None
    if _is_sound(folder):
        os.close(lock)
        raise Conflict("the database is sound; nothing to repair")
    done = snapshots.restore(folder)
    os.close(lock)
    if parsed["json"]:
        print_json(**{**done._asdict(), "taken_at": board.iso(done.taken_at)})
        return 0
    print(f"the damaged database is now in {done.moved_to}")
    if done.snapshot is None:
        print("there was no sound snapshot: the queue starts empty")
    else:
        print(f"restored {plural(done.jobs, 'job')} from {done.snapshot}, as of"
              f" {board.iso(done.taken_at)}; those that waited are held, because they may have run"
              " since")  # fmt: skip
    if done.newest_log > done.newest_job:
        print(f"jobs {done.newest_job + 1} to {done.newest_log}, perhaps more, are not in it; their"
              f" logs are in {os.path.join(folder, 'jobs')}")  # fmt: skip
    if done.jobs:
        print("hint: stoker ls, then stoker release what should run")
    return 0


def _is_sound(folder: str) -> bool:
    """A queue that cannot be used for another reason (a newer schema, no permission) is not ours
    to repair: that raises."""
    try:
        db = open_database(folder, timeout=1.0)
    except Damaged:
        return False
    try:
        return str(db.value("PRAGMA integrity_check")) == "ok"
    except sqlite3.DatabaseError as error:
        if isinstance(translate(error, folder), Damaged):
            return False
        raise
    finally:
        db.close()
