"""The process behind `lease.Waiter`: waits for locks, sends them to its parent, and exits.

python -m stoker.engine.devices.leases.wait_process PID CLAIMS; stdin is the socket to the parent.
"""

from __future__ import annotations

import _thread
import json
import os
import socket
import sys

from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import take_patiently
from stoker.errors import Error
from stoker.fields import from_fields


def main(pid: int, claims: list[DeviceClaim]) -> None:
    link = socket.socket(fileno=0)
    # While the main thread blocks in flock it cannot notice that the parent exited. Without this
    # thread, the gate would stay locked.
    _thread.start_new_thread(_exit_with_parent, (link,))
    try:
        lease = take_patiently(claims, pid)
    except (Error, OSError) as error:
        link.send(str(error).encode())
        os._exit(1)
    socket.send_fds(link, [b"ok"], lease.descriptors)
    os._exit(0)


def _exit_with_parent(link: socket.socket) -> None:
    try:
        link.recv(1)
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), [from_fields(DeviceClaim, claim) for claim in json.loads(sys.argv[2])])
