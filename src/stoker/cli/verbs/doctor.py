"""`stoker doctor`: find problems of this host and say how to fix them."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from stoker.cli.output import plural, print_json
from stoker.cli.repair import id_ranges, repair_database, unknown_jobs
from stoker.engine.daemon import status
from stoker.engine.daemon.wake import CHANGES_SOCKET
from stoker.engine.devices.discovery import find_devices, has_driver
from stoker.engine.devices.driver_client import sample_once
from stoker.engine.model import Device
from stoker.engine.store import job_queries, meta
from stoker.engine.store.database import FILE_NAME, SCHEMA_VERSION, Database, open_database
from stoker.engine.store.idle_counts import idle_count
from stoker.engine.store.repair import backups
from stoker.engine.supervisor import job_processes, locks, process_tags
from stoker.engine.supervisor.process_table import STOPPED, process_state
from stoker.engine.supervisor.sockets import connect
from stoker.errors import Error
from stoker.features import call
from stoker.features.backends import store as backends
from stoker.features.history.usage_recorder import TRACER_LOCK
from stoker.features.notify.place_kinds import APPRISE, kind_of
from stoker.features.notify.places_file import load_places
from stoker.features.notify.senders.by_apprise import INSTALL_HINT, is_installed
from stoker.record import Record
from stoker.settings import (
    Settings,
    check_filesystem,
    cpu_slots,
    filesystem_of,
    load_settings,
    prepare_state_dir,
)
from stoker.text.command_line import Option, Parsed, Verb
from stoker.text.durations import format_duration
from stoker.text.sizes import format_size

T = TypeVar("T")

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
        return repair_database(settings, parsed)
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
    yield from _job_limits(settings)
    yield from _logout()
    yield from _boot(settings)
    yield from _notifications()
    yield from _devices(settings)


def _disk(folder: str) -> Iterator[Finding]:
    space = os.statvfs(folder)
    if space.f_flag & os.ST_RDONLY:
        yield Finding(
            "bad",
            f"the file system of the state folder `{folder}` is read-only",
            "remount it writable; until then no job can be submitted",
        )
    if space.f_files and not space.f_favail:
        yield Finding(
            "bad",
            "the disk of the state folder has no inodes left",
            "remove files; until then no job can start",
        )
    free = shutil.disk_usage(folder).free
    if free < _LOW_DISK:
        yield Finding(
            "warn",
            f"only {format_size(free)} free on the disk of the state folder",
            "stoker clean --older 7d",
        )
    else:
        yield Finding("ok", f"{format_size(free)} free on the disk of the state folder")


def _database(folder: str) -> Iterator[Finding]:
    try:
        db = open_database(folder, timeout=1.0)
    except Error as error:
        yield Finding("bad", error.message, error.hint or "")
        return
    try:
        for pid in _users_of(os.path.join(folder, f"{FILE_NAME}-wal (deleted)")):
            yield Finding(
                "bad",
                f"process {pid} uses a deleted write-ahead log of the queue",
                f"the daemon starts again by itself; others: kill {pid}",
            )
        problem = db.first_problem()
        if problem is not None:
            yield Finding("bad", f"the database is damaged: {problem}", "stoker doctor --repair")
        else:
            yield Finding("ok", f"database intact, schema {SCHEMA_VERSION}")
        ahead = unknown_jobs(folder, db)
        if ahead:
            yield Finding(
                "bad",
                f"the database lacks records: job {id_ranges(ahead)} was started, but is not in it",
                "stoker doctor --repair",
            )
        yield from _idle_gpus(db)
        for row in backends.backends(db):
            if row.problem is not None:
                yield Finding(
                    "bad",
                    f"the backend {row.name} has a problem: {row.problem}",
                    f"stoker backend test {row.name}",
                )
        with db.transaction():
            pass
        _write_file(folder)
    except OSError as error:
        yield Finding(
            "bad",
            f"cannot write to the state folder: {error.strerror}",
            "until that is fixed, no job can be submitted",
        )
    except (Error, sqlite3.Error) as error:
        users = ", ".join(map(str, _users_of(os.path.join(folder, FILE_NAME))))
        why = error.message if isinstance(error, Error) else error
        yield Finding(
            "bad", f"cannot write to the database: {why}", f"processes that have it open: {users}"
        )
    finally:
        db.close()
    known = backups.newest(folder)
    yield Finding("ok", f"{plural(len(known), 'snapshot')} of the database")


def _write_file(folder: str) -> None:
    """Write to the disk: an empty transaction does not, and a disk may fail without a flag."""
    path = os.path.join(folder, f"doctor-{os.getpid()}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, bytes(4096))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        os.unlink(path)


def _idle_gpus(db: Database) -> Iterator[Finding]:
    """Whether GPUs were idle although a job could have run; that is a defect of Stoker."""
    count = idle_count(db)
    if not count.occasions:
        yield Finding("ok", "no GPU was idle while a job could run")
        return
    times = "once" if count.occasions == 1 else f"{count.occasions} times"
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(count.last_at))
    yield Finding(
        "warn",
        f"a GPU was idle {times} while a job could run,"
        f" {format_duration(count.seconds)} in total, last at {at}",
        "this is a defect of Stoker: report it with the file daemon.log",
    )


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
        waiting = _read(folder, lambda db: job_queries.counts(db).get("queued", 0))
        if waiting:
            jobs = "1 job is" if waiting == 1 else f"{waiting} jobs are"
            yield Finding("warn", f"no daemon is running, but {jobs} queued", "stoker daemon start")
        else:
            yield Finding("ok", "no daemon is running; the next `stoker submit` starts one")
    suspended = False
    for what, pid, effect in _processes_of(folder, daemon, runner):
        if process_state(pid) == STOPPED:
            suspended = True
            yield Finding(
                "bad", f"the {what} (pid {pid}) is suspended: {effect}", f"kill -CONT {pid}"
            )
    if daemon is None or suspended:
        return
    answers = _answers(folder)
    if runner is not None and not os.path.exists(os.path.join(folder, "runner.sock")):
        hint = "stoker daemon restart" if answers else f"kill -9 {runner}"
        yield Finding(
            "bad",
            f"the socket of the runner (pid {runner}) was removed",
            f"{hint}   (jobs continue)",
        )
    elif not answers:
        yield Finding(
            "bad",
            f"the daemon (pid {daemon}) does not respond",
            f"kill -9 {daemon} && stoker daemon start   (jobs continue)",
        )
    elif (problem := status.problem(folder)) is not None:
        yield Finding(
            "bad",
            f"the daemon reports: {problem}",
            "it continues as soon as it can write to the state folder",
        )
    elif runner is None:
        yield Finding(
            "warn",
            f"daemon (pid {daemon}) is running, but has no runner yet",
            "check again; if that does not help: stoker daemon restart",
        )
    else:
        yield Finding("ok", f"daemon (pid {daemon}) and runner (pid {runner}) are running")
        python = _read(folder, lambda db: meta.get_meta(db, "daemon_python"))
        if python is not None:
            yield Finding("ok", f"the daemon uses {python}")


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
        if b"stoker.features.sweeps.control.sweep_driver" in words:
            yield "sweep driver", pid, "adaptive sweeps get no new trials"
        elif b"stoker.engine.devices.driver_process" in words:
            yield "GPU monitor", pid, "the state of the GPUs is unknown"


def _answers(folder: str) -> bool:
    """Whether the daemon sends its greeting to a client that connects."""
    try:
        with connect(folder, CHANGES_SOCKET) as client:
            client.settimeout(_ANSWER_SECONDS)
            return bool(client.recv(1))
    except OSError:
        return locks.holder(folder, locks.DAEMON_LOCK) is None  # it has just exited


def _read(folder: str, what: Callable[[Database], T]) -> T | None:
    """What the database says; None if it cannot be read."""
    try:
        db = open_database(folder, timeout=1.0)
    except Error:
        return None
    try:
        return what(db)
    except sqlite3.Error:
        return None
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
        yield Finding(
            "bad",
            "child processes do not inherit resource limits",
            "processes that detach from their job cannot be found",
        )
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


def _job_limits(settings: Settings) -> Iterator[Finding]:
    """Whether --cpus and --mem are limits; for the processes of the runner, if there is one."""
    from stoker.engine.daemon.status import runner_pid
    from stoker.engine.supervisor.job_cgroups import limit_parent
    from stoker.features.memory_limits.limit_cgroups import find_problem

    parent = settings.cgroup or limit_parent(runner_pid(settings.state_dir))
    problem = find_problem(parent)
    if problem is None and settings.limits:
        yield Finding("ok", f"--cpus and --mem are limits, in the cgroup `{parent}`")
    elif settings.limits:
        yield Finding(
            "warn",
            f"--cpus and --mem are reserved, but not enforced: {problem}",
            "systemd-run --user --scope -p Delegate=yes stoker daemon restart, or set `cgroup`",
        )
    else:
        why = "" if problem is None else f", and cannot be here: {problem}"
        yield Finding("ok", f'--cpus and --mem are reserved, not enforced (limits = "off"){why}')


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
        yield Finding(
            "bad",
            "systemd kills your jobs at logout (KillUserProcesses=yes)",
            "loginctl enable-linger",
        )
    else:
        yield Finding("ok", "jobs continue after logout")


def _boot(settings: Settings) -> Iterator[Finding]:
    """Whether the daemon is started after a boot; waiting jobs would wait for a command."""
    try:
        found = call("boot_start", settings)
    except Error as error:
        yield Finding("warn", f"start after a reboot: {error.message}", error.hint or "")
        return
    if found is None:
        return
    if found.how is None:
        yield Finding(
            "warn", "the daemon is not started after a reboot of this host", "stoker daemon enable"
        )
    elif found.lingers is False:
        yield Finding(
            "bad",
            "systemd starts the daemon at your login, and kills jobs at your logout",
            "loginctl enable-linger",
        )
    else:
        yield Finding("ok", f"the daemon is {found.words()}")


def _notifications() -> Iterator[Finding]:
    """Places whose messages cannot be sent from here."""
    try:
        kinds = {name: kind_of(url) for name, url in load_places().items()}
    except Error as error:
        yield Finding("bad", f"notifications: {error.message}", error.hint or "")
        return
    for name, kind in kinds.items():
        if kind == APPRISE and not is_installed():
            yield Finding(
                "bad", f"the place `{name}` for notifications needs Apprise", INSTALL_HINT
            )


def _connections(devices: tuple[Device, ...]) -> str:
    """How the GPUs are connected, for the line about GPUs; "" if nothing is known."""
    nodes = {device.numa for device in devices if device.numa is not None}
    linked = sum(bool(device.links) for device in devices)
    words = ""
    if any(device.cpus for device in devices):
        words += f"; {plural(len(nodes), 'NUMA node')}, jobs run on the CPUs near their GPUs"
    return words + (f"; {linked} connected by NVLink" if linked else "")


def _mps(settings: Settings, devices: tuple[Device, ...]) -> Iterator[Finding]:
    """NVIDIA's MPS, on the GPUs where it is set up or was used."""
    if settings.devices:
        return
    from stoker.client.views.gpus import load_mps_view
    from stoker.engine.store.device_settings import device_shares

    try:
        db = open_database(settings.state_dir, timeout=1.0)
    except Error:
        return
    try:
        shares = device_shares(db)
    finally:
        db.close()
    for device in devices:
        device = device._replace(share=shares.get(device.uuid, settings.gpu_share))
        view = load_mps_view(device, [])
        if view is not None and (view.reason is not None or view.state != "stopped"):
            words = f"GPU {device.visible}: {view.words()}"
            if view.reason is None:
                yield Finding("ok", words)
            else:
                yield Finding("warn", words, "see the section about MPS in docs/gpus.md")


def _devices(settings: Settings) -> Iterator[Finding]:
    if not settings.devices and has_driver():
        from stoker.client.views.gpus import lease_problem

        sample = sample_once()
        if sample.gpus is None:
            yield Finding(
                "bad",
                f"no GPU can be used: {sample.error}",
                "CPU jobs continue; GPU jobs start when the driver responds",
            )
            return
        for gpu in sample.gpus:
            problem = lease_problem(gpu, settings)
            if gpu.error is not None:
                yield Finding("bad", f"GPU {gpu.visible}: {gpu.error}")
            elif problem is not None:
                yield Finding("bad", f"GPU {gpu.visible}: {problem.message}", problem.hint or "")
    devices = find_devices(settings.devices)
    if devices:
        names = ", ".join(sorted({device.model or "GPU" for device in devices}))
        yield Finding("ok", f"{plural(len(devices), 'GPU')}: {names}{_connections(devices)}")
        yield from _mps(settings, devices)
    else:
        yield Finding(
            "ok",
            f"no GPU found; CPU jobs run {cpu_slots(settings)} at a time",
            "STOKER_DEVICES=4 simulates four GPUs",
        )
