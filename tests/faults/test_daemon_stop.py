"""`stoker daemon stop` while the runner is still starting: it starts no other daemon."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from stoker.engine.supervisor import locks, runner_client, sockets
from stoker.engine.supervisor.wire import Wire


def test_daemon_that_stops_before_its_runner_has_started_sends_bye() -> None:
    """Otherwise the runner finds a broken connection and starts another daemon."""
    daemon, runner = socket.socketpair()
    wire = Wire(daemon)
    stop = {"attempt": 1, "reason": "cancelled"}
    wire.put("stop", stop)
    wire.send("bye", {})
    wire.close()
    messages, is_alive = Wire(runner).receive()
    runner.close()
    assert (messages, is_alive) == ([("stop", stop), ("bye", {})], False)


def test_stop_waits_for_a_runner_that_does_not_listen_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = locks.take(str(tmp_path), locks.RUNNER_LOCK)
    listeners: list[socket.socket] = []

    def connect(folder: str, name: str) -> socket.socket:
        try:
            return sockets.connect(folder, name)
        finally:  # the runner listens after the first attempt
            if not listeners:
                listeners.append(sockets.listen(folder, name))

    monkeypatch.setattr(runner_client, "connect", connect)
    assert runner_client.release_runner(str(tmp_path)) == os.getpid()
    connection, _ = listeners[0].accept()
    with connection, listeners[0]:
        assert connection.recv(100) == b'["bye",{}]\n'
    os.close(lock)
