"""The owners of processes on GPUs: our attempts by tag, other processes by user name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from stoker.engine.devices.leases.lease import holders
from stoker.engine.gpus.sample import GpuSample
from stoker.engine.supervisor.job_processes import owner_of
from stoker.engine.supervisor.process_table import name_of
from stoker.errors import Error

# Of the control daemon and the server of MPS: the kernel cuts process names to 15 bytes.
_MPS_NAME = "nvidia-cuda-mps"


def owners(
    gpus: Iterable[GpuSample], tag_base: int, known: Mapping[int, int] | None = None
) -> tuple[dict[int, int], dict[int, str]]:
    """(attempts by PID, user names by PID); `known`: attempts of PIDs that may be dead by now."""
    attempts: dict[int, int] = {}
    users: dict[int, str] = {}
    for pid in {process.pid for gpu in gpus for process in gpu.processes}:
        attempt = owner_of(pid, tag_base)
        if attempt is not None:
            attempts[pid] = attempt
        elif known is not None and pid in known:
            attempts[pid] = known[pid]
        else:
            users[pid] = user_of(pid)
    return attempts, users


def leased_on(gpu: GpuSample, users: Mapping[int, str], ours: int | None) -> set[int]:
    """PIDs of other processes on a GPU that belong to jobs with a lease.

    Jobs may run without a lease: if only our daemon (PID `ours`) holds one, the result is empty.
    """
    pids = {p.pid for p in gpu.processes if p.pid in users and _has_job_tag(p.pid)}
    if not pids:
        return pids
    try:
        held = holders([(gpu.uuid, gpu.pci, gpu.slice_of is not None)])
    except Error:
        return set()
    return pids if any(holder.pid != ours for holder in held) else set()


def _has_job_tag(pid: int) -> bool:
    """Whether a process has the tag of any user's job.

    The tag is in the resource limits, which every user can read.
    """
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            line = next(line for line in file if line.startswith(b"Max file locks"))
            return line.split()[3].isdigit() and int(line.split()[3]) >= 1 << 32
    except (OSError, StopIteration):
        return False


def mps_servers(users: Mapping[int, str]) -> set[int]:
    """PIDs of the MPS servers of this user among other processes on GPUs.

    They belong to Stoker, or to clients that are listed themselves.
    """
    return {pid for pid in users if is_own_mps_process(pid)}


def is_own_mps_process(pid: int) -> bool:
    """Whether a process is a control daemon or a server of MPS, of this user."""
    try:
        return name_of(pid) == _MPS_NAME and os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
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
