"""Processes of two releases work together: an upgrade replaces only the daemon."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.engine.supervisor import locks
from stoker.engine.supervisor.journal import JournalBegun, read_journal
from stoker.engine.supervisor.wire import PROTOCOL, Wire
from stoker.functions import payload
from tests.helpers import Gate, is_alive
from tests.lab import Lab

# Written to a `sitecustomize` module, which every process of the lab imports.
OLDER_RUNNER = """
import sys
if "stoker.engine.supervisor.runner" in sys.orig_argv:
    import stoker
    stoker.__version__ = "0.0.9"
"""


@pytest.fixture
def old_lab(new_lab: Callable[..., Lab], tmp_path: Path) -> Lab:
    """A lab whose runner is of an older release."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(OLDER_RUNNER)
    return new_lab(devices=2, PYTHONPATH=str(site))


def test_jobs_of_an_older_runner_continue_and_finish_under_a_newer_daemon(old_lab: Lab) -> None:
    gate = Gate(old_lab.folder)
    first = old_lab.submit(f"{gate.wait}; exit 6")
    (pid,) = gate.wait_for()
    old_lab.wait_until(lambda: old_lab.state(first) == "running")
    runner = old_lab.runner_pid()
    old_lab.ok("daemon", "stop")
    old_lab.ok("daemon", "start")
    second = old_lab.submit("echo started by the older runner")
    assert old_lab.wait(second) == 0
    assert old_lab.runner_pid() == runner
    assert is_alive(pid)
    gate.open()
    assert old_lab.wait(first) == 6
    assert old_lab.job(first)["exit_code"] == 6
    old_lab.wait_until(lambda: old_lab.runner_pid() not in (None, runner), what="a newer runner")
    assert old_lab.wait(old_lab.submit("true")) == 0
    assert "Traceback" not in (old_lab.state_dir / "daemon.log").read_text()


def test_cancel_reaches_a_job_of_an_older_runner(old_lab: Lab) -> None:
    gate = Gate(old_lab.folder)
    job = old_lab.submit(gate.wait)
    gate.wait_for()
    old_lab.kill_daemon()
    old_lab.ok("daemon", "start")
    old_lab.ok("cancel", str(job))
    old_lab.wait(job)
    assert old_lab.state(job) == "cancelled"


class Peer:
    """The daemon's end of a runner's connection, for messages of any release."""

    def __init__(self, folder: Path) -> None:
        lock = locks.take(str(folder), locks.RUNNER_LOCK)
        self.socket, theirs = socket.socketpair()
        words = [str(folder), "77", "1000000", str(theirs.fileno()), str(lock), "/bin/true"]
        self.log = folder / "runner.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stoker.engine.supervisor.runner", *words],
                pass_fds=[theirs.fileno(), lock], stderr=log,
            )  # fmt: skip
        theirs.close()
        os.close(lock)
        self._file = self.socket.makefile("rb")

    def send(self, *message: object) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, kind: str) -> list[Any]:
        while True:
            line = self._file.readline()
            assert line, f"the runner exited without `{kind}`: {self.log.read_text()}"
            message: list[Any] = json.loads(line)
            if message[0] == kind:
                return message

    def close(self) -> None:
        self.send("bye")
        self._file.close()
        self.socket.close()
        self.process.wait()


@pytest.fixture
def peer(tmp_path: Path) -> Any:
    made = Peer(tmp_path)
    yield made
    made.close()


def test_runner_ignores_unknown_fields_and_messages(peer: Peer, tmp_path: Path) -> None:
    peer.send("hello", {"protocol": 9, "color": "red"})
    assert peer.receive("hello")[1]["protocol"] == PROTOCOL
    peer.send("dance", {"how": "slowly"})
    peer.socket.sendall(b"this is not JSON\n[]\n5\n")
    peer.send("stop", {"reason": "user"})
    peer.send("context", {
        "id": 1, "cwd": "/", "env": [["PATH", os.environ["PATH"]]], "umask": 18,
        "shell": "/bin/sh", "nice": 7,
    })  # fmt: skip
    order = {
        "leases": 0, "attempt": 5, "job": 1, "number": 1, "argv": ["exit 3"], "shell": True,
        "context": 1, "env": {}, "devices": [0], "stdout": str(tmp_path / "out"), "stderr": None,
        "own_log": True, "time_limit": None, "grace": 10.0, "keep_children": False,
        "sandbox": {"a": 1},
    }  # fmt: skip
    peer.send("launch", order)
    assert peer.receive("ended")[1]["status"] == 3 << 8
    peer.send("launch", {"leases": 0, "attempt": 6, "job": 2})
    refused = peer.receive("refused")[1]
    assert refused["attempt"] == 6
    assert "cannot decode the order" in refused["why"]
    assert peer.process.poll() is None
    text = peer.log.read_text()
    assert "message of unknown kind `dance`" in text
    assert "Traceback" not in text


def test_daemon_ignores_unknown_fields_and_messages() -> None:
    ours, theirs = socket.socketpair()
    wire = Wire(ours)
    wire.send("stop", {"attempt": 1, "reason": "user", "grace": None})
    file = theirs.makefile("rb")
    assert json.loads(file.readline())[0] == "hello"
    assert json.loads(file.readline()) == [
        "stop", {"attempt": 1, "reason": "user", "grace": None},
    ]  # fmt: skip
    theirs.sendall(b'["hello",{"protocol":3}]\nnonsense\n["ended",{"attempt":1,"mood":2}]\n')
    messages, is_alive = wire.receive()
    assert (messages, is_alive) == ([("ended", {"attempt": 1, "mood": 2})], True)
    assert wire.protocol == 3
    file.close()
    wire.close()
    theirs.close()


def test_descriptors_of_an_order_arrive_with_it() -> None:
    ours, theirs = socket.socketpair()
    near, far = Wire(ours), Wire(theirs)
    reading, writing = os.pipe()
    near.send("launch", {"leases": 1}, [writing])
    messages, _ = far.receive()
    assert messages == [("launch", {"leases": 1})]
    (arrived,) = far.take_descriptors(1)
    os.write(arrived, b"x")
    assert os.read(reading, 1) == b"x"
    os.close(arrived)
    os.close(reading)
    near.close()
    far.close()


def test_journal_of_a_newer_runner_is_read_without_unknown_records(tmp_path: Path) -> None:
    (tmp_path / "journal-1").write_bytes(
        b"stoker-journal 1\n"
        b"begun 1 2 1 5.0 6.0 boot 0,1 and more words\n"
        b"slept 1 for a while\n"
        b"ended 1 256 7.0 0.1 0.2 1024 - \n"
        b"begun 2 x\n"
    )
    records = list(read_journal(str(tmp_path)))
    assert [type(record).__name__ for record in records] == ["JournalBegun", "Outcome"]
    assert isinstance(records[0], JournalBegun)
    assert records[0].devices == (0, 1)


def test_result_of_a_call_is_read_without_unknown_fields() -> None:
    value = pickle.dumps(5)
    newer = payload.read_call_result(pickle.dumps({"attempt": 1, "value": value, "color": "red"}))
    assert newer == payload.CallResult(1, value)
    written = payload.read_call_result(payload.encode_value(1, 5, "f"))
    assert (written.attempt, pickle.loads(written.value or b"")) == (1, 5)
