"""Locks that other processes check while they are taken."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stoker.engine.supervisor import locks
from stoker.errors import Conflict


def test_checking_a_lock_never_blocks_a_process_that_takes_it(tmp_path: Path) -> None:
    import os

    folder, done = str(tmp_path), threading.Event()
    os.close(locks.take(folder, locks.DAEMON_LOCK))

    def look() -> None:
        while not done.is_set():
            locks.holder(folder, locks.DAEMON_LOCK)

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(300):
            os.close(locks.take(folder, locks.DAEMON_LOCK))
    finally:
        done.set()
        for looker in lookers:
            looker.join()


def test_held_lock_names_its_holder(tmp_path: Path) -> None:
    import os

    held = locks.take(str(tmp_path), locks.DAEMON_LOCK)
    with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
        locks.take(str(tmp_path), locks.DAEMON_LOCK)
    assert locks.holder(str(tmp_path), locks.DAEMON_LOCK) == os.getpid()
    os.close(held)
    assert locks.holder(str(tmp_path), locks.DAEMON_LOCK) is None
