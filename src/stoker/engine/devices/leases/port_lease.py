"""Lease a TCP port on this host, for the rendezvous of a job with several GPUs.

A port that is only found free may be given to two jobs before the first one listens. So each port
has a lock file, like a GPU without a sysfs folder, and the job's processes inherit the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket

from stoker.engine.devices.leases.lease_files import lease_folder, lock
from stoker.errors import Error

_FIRST, _LAST = 20000, 29499  # below the ephemeral ports of Linux, and below torchrun's default
_TRIES = 100


def take_port(takes_lease: bool = True) -> tuple[int, int | None]:
    """Return a free port and the descriptor of its lock.

    The descriptor is None if no lock could be taken; the port was free when it was found.
    """
    try:
        folder = lease_folder() if takes_lease else None
    except (Error, OSError):
        folder = None
    for _ in range(_TRIES):
        port = _FIRST + int.from_bytes(os.urandom(4), "little") % (_LAST - _FIRST + 1)
        if folder is None:
            if _is_free(port):
                return port, None
            continue
        try:
            held = lock(f"{folder}/port-{port}", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (Error, OSError):
            folder = None
            continue
        if held is not None:
            if _is_free(port):
                return port, held
            os.close(held)
    with socket.socket() as probe:  # let the kernel choose an ephemeral port
        probe.bind(("", 0))
        return int(probe.getsockname()[1]), None


def _is_free(port: int) -> bool:
    """Whether a server could listen on this port on all addresses now."""
    with socket.socket() as probe:
        # Without it, connections in TIME_WAIT count as used.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # a sandbox may refuse only this address
    return True
