"""From a client: poke the daemon; if nobody hears it, start one.

On the path of every `stoker submit`, so it imports next to nothing.
"""

from __future__ import annotations

import _socket
import os
import sys

from stoker.errors import Unavailable
from stoker.settings import Settings

POKE_SOCKET = "wake.sock"
_LOG_NAME = "daemon.log"
_START_SECONDS = 10.0


def poke(folder: str) -> bool:
    """Tell the daemon to look at the database; False when there is none."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        sender.setblocking(False)
        sender.sendto(b"p", f"/proc/self/fd/{descriptor}/{POKE_SOCKET}")
    except BlockingIOError:
        pass  # it has pokes enough
    except OSError:
        return False
    finally:
        sender.close()
        os.close(descriptor)
    return True


def ensure_daemon(settings: Settings) -> bool:
    """Poke, or start a daemon; True when it was started by this call."""
    if poke(settings.state_dir):
        return False
    start_daemon(settings)
    return True


def start_daemon(settings: Settings) -> int:
    """Start a daemon that outlives this terminal; returns its PID once it listens."""
    import time

    from stoker.supervisor import locks

    log = os.path.join(settings.state_dir, _LOG_NAME)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(log, flags, 0o600)
    env = {**os.environ, "STOKER_STATE_DIR": settings.state_dir}
    # setsid and a parent that does not wait: the terminal may close, init inherits it.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "stoker.daemon.detach"],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, descriptor, 1),
            (os.POSIX_SPAWN_DUP2, descriptor, 2),
        ],
        setsid=True,
    )
    os.close(descriptor)
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up:
        if poke(settings.state_dir):
            pid = locks.holder(settings.state_dir, locks.DAEMON_LOCK)
            if pid is not None:
                return pid
        time.sleep(0.01)
    raise Unavailable(
        "the daemon did not start; your jobs are in the queue", f"its last words are in {log}"
    )
