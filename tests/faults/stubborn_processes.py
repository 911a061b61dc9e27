"""A job with eight processes that are hard to kill.

python stubborn_processes.py FOLDER     each writes its PID to FOLDER/<name>, then runs forever
"""

from __future__ import annotations

import os
import signal
import sys
import time


def run_forever(name: str) -> None:
    """Write our PID, then sleep forever."""
    with open(os.path.join(FOLDER, name), "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(60)


def in_child(action) -> None:  # type: ignore[no-untyped-def]
    if os.fork() == 0:
        action()
        os._exit(0)


def ignoring_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    run_forever("ignores-sigterm")


def in_own_session() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    run_forever("session")


def double_forked() -> None:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        run_forever("daemonised")
    os._exit(0)


def without_environment() -> None:
    """Double-forked, empty environment, no descriptors."""
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 1024)
        code = (
            "import os,signal,time; signal.signal(15, signal.SIG_IGN);"
            f"f=os.open({os.path.join(FOLDER, 'no-environment')!r}, 0o101);"
            "os.write(f, str(os.getpid()).encode()); os.close(f); time.sleep(10**6)"
        )
        os.execve(sys.executable, [sys.executable, "-S", "-c", code], {})
    os._exit(0)


def stopped() -> None:
    with open(os.path.join(FOLDER, "stopped"), "w") as file:
        file.write(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(10**6)


def reforking() -> None:
    """Replaces itself by a child with a new session and PID every few milliseconds."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(os.path.join(FOLDER, "reforking"), "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.005)
        if os.fork():
            os._exit(0)
        os.setsid()


if __name__ == "__main__":
    FOLDER = sys.argv[1]
    for kind in (
        ignoring_sigterm,
        in_own_session,
        double_forked,
        without_environment,
        stopped,
        reforking,
    ):
        in_child(kind)
    in_child(lambda: run_forever("plain"))
    run_forever("main")
