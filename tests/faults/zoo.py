"""The seven hostile processes of a job that does not want to die, and an eighth that breeds.

python zoo.py FOLDER     each writes its PID to FOLDER/<name>, then lives for ever
"""

from __future__ import annotations

import os
import signal
import sys
import time


def live(name: str) -> None:
    """Say that we live, and do nothing else."""
    with open(os.path.join(FOLDER, name), "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(60)


def in_child(action) -> None:  # type: ignore[no-untyped-def]
    if os.fork() == 0:
        action()
        os._exit(0)


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    live("deaf")


def in_own_session() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    live("session")


def double_forked() -> None:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        live("daemonised")
    os._exit(0)


def without_a_trace() -> None:
    """Double-forked, empty environment, no descriptors."""
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 1024)
        code = (
            "import os,signal,time; signal.signal(15, signal.SIG_IGN);"
            f"f=os.open({os.path.join(FOLDER, 'traceless')!r}, 0o101);"
            "os.write(f, str(os.getpid()).encode()); os.close(f); time.sleep(10**6)"
        )
        os.execve(sys.executable, [sys.executable, "-S", "-c", code], {})
    os._exit(0)


def stopped() -> None:
    with open(os.path.join(FOLDER, "stopped"), "w") as file:
        file.write(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(10**6)


def breeding() -> None:
    """A new session and a new PID every few milliseconds; the old one leaves."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(os.path.join(FOLDER, "breeding"), "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.005)
        if os.fork():
            os._exit(0)
        os.setsid()


if __name__ == "__main__":
    FOLDER = sys.argv[1]
    for kind in (deaf, in_own_session, double_forked, without_a_trace, stopped, breeding):
        in_child(kind)
    in_child(lambda: live("plain"))
    live("main")
