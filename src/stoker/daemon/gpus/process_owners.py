"""Whose a process on a card is: our attempts by their tags, other people by name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from stoker.core.gpus.sample import GpuSample
from stoker.devices.leases.lease import holders
from stoker.errors import Error
from stoker.supervisor.job_processes import owner_of


def owners(
    cards: Iterable[GpuSample], tag_base: int, known: Mapping[int, int] | None = None
) -> tuple[dict[int, int], dict[int, str]]:
    """(attempts by PID, names of users by PID); `known` has PIDs that were ours when they lived."""
    attempts: dict[int, int] = {}
    users: dict[int, str] = {}
    for pid in {process.pid for card in cards for process in card.processes}:
        attempt = owner_of(pid, tag_base)
        if attempt is not None:
            attempts[pid] = attempt
        elif known is not None and pid in known:
            attempts[pid] = known[pid]
        else:
            users[pid] = user_of(pid)
    return attempts, users


def leased_on(card: GpuSample, users: Mapping[int, str], ours: int | None) -> set[int]:
    """Those of the strangers on a card that are part of a job with a lease.

    Jobs can be started without one; where nobody but us (`ours` is our daemon) holds the card, none
    of them has any.
    """
    pids = {p.pid for p in card.processes if p.pid in users and _is_of_a_job(p.pid)}
    if not pids:
        return pids
    try:
        held = holders([(card.uuid, card.pci, card.slice_of is not None)])
    except Error:
        return set()
    return pids if any(holder.pid != ours for holder in held) else set()


def _is_of_a_job(pid: int) -> bool:
    """Whether a process carries anybody's tag.

    From its limits, which unlike other facts of a process can be read by everybody.
    """
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            line = next(line for line in file if line.startswith(b"Max file locks"))
            return line.split()[3].isdigit() and int(line.split()[3]) >= 1 << 32
    except (OSError, StopIteration):
        return False


def user_of(pid: int) -> str:
    try:
        return user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return "?"


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
