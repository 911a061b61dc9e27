"""Client side: wake the daemon, or start one if none is running.

Every `stoker submit` runs this, so it imports almost nothing.
"""

from __future__ import annotations

import _socket
import os
import sys

from stoker.errors import Unavailable
from stoker.settings import Settings

WAKE_SOCKET = "wake.sock"
DAEMON_MODULE = "stoker.engine.daemon.detach"
_LOG_NAME = "daemon.log"
_START_SECONDS = 10.0


def wake_daemon(folder: str, message: bytes = b"p") -> bool:
    """Make the daemon read the database; False if no daemon is listening."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        sender.setblocking(False)
        sender.sendto(message, f"/proc/self/fd/{descriptor}/{WAKE_SOCKET}")
    except BlockingIOError:
        pass  # its socket is full, so it wakes up anyway
    except OSError:
        return False
    finally:
        sender.close()
        os.close(descriptor)
    return True


def ensure_daemon(settings: Settings, module: str = DAEMON_MODULE) -> bool:
    """Wake the daemon, or start one; True when it was started by this call."""
    if wake_daemon(settings.state_dir):
        return False
    start_daemon(settings, module)
    return True


def start_daemon(settings: Settings, module: str = DAEMON_MODULE) -> int:
    """Start a daemon that outlives this terminal; returns its PID once it listens."""
    import time

    from stoker.engine.supervisor import locks

    folder = settings.state_dir
    deadline = time.monotonic() + _START_SECONDS
    is_spawned = False
    while time.monotonic() < deadline:
        pid = locks.holder(folder, locks.DAEMON_LOCK)
        if pid is not None and wake_daemon(folder):
            return pid
        # A daemon that holds the lock and does not listen is starting or exiting. Do not start a
        # second one: it might survive when a user stops the first.
        if pid is None and not is_spawned:
            _spawn(folder, module)
            is_spawned = True
        time.sleep(0.01)
    raise Unavailable(
        "the daemon did not start; your jobs are in the queue",
        f"see its log: {os.path.join(folder, _LOG_NAME)}",
    )


def _spawn(folder: str, module: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(os.path.join(folder, _LOG_NAME), flags, 0o600)
    # A daemon that is started by a job does not belong to that job.
    env = {**os.environ, "STOKER_STATE_DIR": folder}
    env.pop("STOKER_PROCESS_TAGS", None)
    # -P: do not import modules, such as a json.py, from the user's working directory.
    # setsid: the daemon survives when the terminal closes.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", module],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setsid=True,
    )
    os.close(log)
