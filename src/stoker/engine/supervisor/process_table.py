"""Reads the kernel's process table (/proc)."""

from __future__ import annotations

import os
import time

from stoker.record import Record

STOPPED = "T"


class Process(Record):
    pid: int
    parent: int
    session: int
    state: str
    threads: int
    started: int  # clock ticks since boot; detects PID reuse


def read_process(pid: int) -> Process | None:
    """None if there is no such process, or it is hidden from this user."""
    try:  # os.open: the buffers of open() would double the time of a pass over all processes
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        words = os.read(descriptor, 1024).rpartition(b")")[2].split(None, 20)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return Process(
        pid=pid,
        parent=int(words[1]),
        session=int(words[3]),
        state=words[0].decode(),
        threads=int(words[17]),
        started=int(words[19]),
    )


def process_state(pid: int) -> str:
    """R, S, D, T, Z and others; empty if there is no such process."""
    process = read_process(pid)
    return "" if process is None else process.state


def start_time(pid: int) -> float | None:
    """When a process started (wall clock); None if there is no such process."""
    process = read_process(pid)
    if process is None:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def monotonic_start(started: int | None) -> float:
    """When a process started, as a monotonic time, from its clock ticks since boot."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - (started or 0) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age


def ticks_since_boot() -> int:
    """The start time of a process that starts now."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def read_processes() -> dict[int, Process]:
    """All processes by PID, in one pass."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            process = read_process(int(entry))
            if process is not None:
                found[process.pid] = process
    return found


def zombie_status(pid: int, started: int) -> int | None:
    """The wait status of a process that has exited and was not reaped; None if not known.

    Without CAP_SYS_PTRACE, the kernel shows it only for processes whose user and group IDs are all
    ours; for others it shows 0.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            ids = {words[0]: words[1:4] for words in map(bytes.split, file) if len(words) == 5}
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    own = {b"Uid:": [b"%d" % os.geteuid()] * 3, b"Gid:": [b"%d" % os.getegid()] * 3}
    if any(ids.get(key) != values for key, values in own.items()):
        return None
    if words[0] != b"Z" or int(words[19]) != started or len(words) < 50:
        return None
    return int(words[49])


def is_running(process: Process) -> bool:
    """Whether a thread of the process is left. The main thread may exit before the others."""
    return process.state not in ("Z", "X") or process.threads > 1


def name_of(pid: int) -> str:
    """The program name of a process; empty if it has exited."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().strip().decode(errors="replace")
    except OSError:
        return ""
