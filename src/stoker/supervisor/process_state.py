"""What the kernel says of a process. Light: `stoker ls` imports this."""

from __future__ import annotations

STOPPED = "T"


def state_of(pid: int) -> str:
    """R, S, D, T, Z and others; empty when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split(None, 1)[0].decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z", "X")
