"""Which processes belong to an attempt, and how to end them all.

Every process of an attempt carries a number that the kernel hands down through fork, exec, setsid,
double forks, emptied environments and closed descriptors: its soft limit on file locks
(RLIMIT_LOCKS), which Linux has not enforced since 2.4. It can be read of every process of the same
user with one system call, so "is anything of this attempt alive?" has an exact answer without
remembered PIDs. (A process can shed it only by setting that limit itself.)
"""

from __future__ import annotations

import os
import resource
import signal
import time

from stoker.supervisor.process_state import is_alive

_RLIMIT_LOCKS = 10
_UNTAGGED = resource.RLIM_INFINITY


def tag_of(base: int, attempt: int) -> int:
    """The number for an attempt of the store whose own number is `base` (30 bits)."""
    return base << 32 | attempt


def wear(tag: int) -> None:
    """Processes started from now on carry this tag."""
    resource.setrlimit(_RLIMIT_LOCKS, (tag, resource.RLIM_INFINITY))


def shed() -> None:
    """Carry no tag: this process and what it starts belong to no attempt."""
    resource.setrlimit(_RLIMIT_LOCKS, (_UNTAGGED, resource.RLIM_INFINITY))


def read_tag(pid: int) -> int | None:
    """The tag of a process; None when it has none, is gone, or is not ours to ask."""
    try:
        tag = resource.prlimit(pid, _RLIMIT_LOCKS)[0]
    except (ProcessLookupError, PermissionError):
        return None
    return None if tag == _UNTAGGED else tag


def members(matches: int, shift: int = 0) -> list[int]:
    """Living processes whose tag, shifted right, equals `matches`; never this process itself."""
    return [pid for pid in _tagged(matches, shift) if is_alive(pid)]


def first_process(tag: int) -> int | None:
    """The process that leads an attempt's session, even if it is dead and not yet collected."""
    for pid in _tagged(tag, 0):
        try:
            if os.getsid(pid) == pid:
                return pid
        except ProcessLookupError:
            continue
    return None


def _tagged(matches: int, shift: int) -> list[int]:
    me = os.getpid()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            pid = int(entry)
            tag = read_tag(pid)
            if tag is not None and tag >> shift == matches and pid != me:
                found.append(pid)
    return found


def children(pid: int) -> list[int]:
    """The direct children of a process; none where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def programs(pid: int, shell: str | None) -> list[int]:
    """Who is meant by a signal to a job: what its shell runs, or the first process itself.

    A shell often becomes its last command (exec), so what it was started as does not tell.
    """
    if shell is not None:
        try:
            is_shell = os.path.samefile(f"/proc/{pid}/exe", shell)
        except OSError:
            is_shell = False
        if is_shell:
            return children(pid) or [pid]
    return [pid]


def ask_to_end(tag: int) -> None:
    """SIGTERM to all, and SIGCONT, because a stopped process does not hear the first."""
    for pid in members(tag):
        send(pid, signal.SIGTERM, tag)
        send(pid, signal.SIGCONT, tag)


def kill(matches: int, shift: int = 0, patience: float = 0.5) -> bool:
    """Stop, then kill, until two looks in a row find nobody; False if some would not die.

    Stopping first keeps a process that breeds faster than we look from escaping.
    """
    give_up = time.monotonic() + patience
    empty = 0
    while empty < 2:
        found = members(matches, shift)
        empty = 0 if found else empty + 1
        for pid in found:
            send(pid, signal.SIGSTOP, None)
        for pid in found:
            send(pid, signal.SIGKILL, None)
        if found and time.monotonic() > give_up:
            return False
    return True


def send(pid: int, number: int, tag: int | None) -> None:
    """Signal a process only through a handle on it that was checked after it was opened."""
    try:
        handle = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return
    try:
        # Between the look at /proc and the open the PID may have changed hands; a stranger that
        # got it carries no tag of ours.
        if read_tag(pid) is not None and (tag is None or read_tag(pid) == tag):
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(handle)
