"""The daemon's connection to the runner: finds or starts it, sends orders, receives events.

If the runner dies, its jobs become children of the daemon (or of init, if an earlier daemon had
started the runner); `orphans` then supervises them, and a new runner takes further orders.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from stoker import __version__
from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor import job_processes, locks
from stoker.engine.supervisor.journal import JournalRecord, read_journal, remove_before, segments
from stoker.engine.supervisor.messages import AttemptStarted, Order, Refused, RunnerEvent, Stuck
from stoker.engine.supervisor.runner import SOCKET_NAME
from stoker.engine.supervisor.sockets import connect
from stoker.engine.supervisor.spawn import MAX_CONTEXTS
from stoker.engine.supervisor.wire import Wire, note
from stoker.errors import Unavailable
from stoker.fields import from_fields

_CONNECT_SECONDS = 10.0


class RunnerClient:
    def __init__(self, folder: str, tag_base: int, log_limit: int, restart: list[str]) -> None:
        self._folder = folder
        self._restart = restart
        self._tag_base = tag_base
        self._log_limit = log_limit
        self._known_contexts: set[int] = set()
        self._safe_before: int | None = None
        self._unknown: set[str] = set()  # unknown kinds of messages that were logged
        self.is_fresh = False
        self.is_connected = True
        self._problem: str | None = None
        self._wire = self._connect(_CONNECT_SECONDS)

    def fileno(self) -> int:
        return self._wire.fileno()

    @property
    def has_backlog(self) -> bool:
        return self.is_connected and self._wire.has_backlog

    def take_problem(self) -> str | None:
        """The problem that the runner reported since the last call; "" if it is over."""
        problem, self._problem = self._problem, None
        return problem

    def _connect(self, timeout: float) -> Wire:
        """Connect to the runner, or start one; raises OSError or Conflict if both fail."""
        self._known_contexts.clear()
        deadline = time.monotonic() + timeout
        while locks.holder(self._folder, locks.RUNNER_LOCK) is not None:
            try:
                self.is_fresh = False
                return Wire(connect(self._folder, SOCKET_NAME))
            except OSError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.01)  # it holds the lock: it is starting or exiting
        return self._start()

    def _start(self) -> Wire:
        # Take the lock before the runner starts: the next daemon then waits for a slow runner and
        # does not treat orders as lost that the runner is still going to read.
        lock = locks.take(self._folder, locks.RUNNER_LOCK)
        os.ftruncate(lock, 0)
        os.set_inheritable(lock, True)
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        argv = [
            sys.executable,
            "-P",
            "-m",
            "stoker.engine.supervisor.runner",
            self._folder,
            str(self._tag_base),
            str(self._log_limit),
            str(theirs.fileno()),
            str(lock),
            *self._restart,
        ]
        try:
            pid = os.posix_spawn(sys.executable, argv, os.environ)
            with suppress(OSError):  # the PID is only informative
                os.pwrite(lock, str(pid).encode(), 0)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(lock)
        self.is_fresh = True
        return Wire(ours)

    def live_attempts(self) -> list[AttemptStarted]:
        """The running attempts. After the answer, all earlier orders are in the journal.

        Raises Unavailable if the runner does not answer.
        """
        self._wire.send("list", {})
        deadline = time.monotonic() + _CONNECT_SECONDS
        while time.monotonic() < deadline:
            select.select([self._wire], [], [], 1.0)
            self._wire.flush()
            messages, is_alive = self._wire.receive()
            for kind, fields in messages:  # other messages are in the journal too
                if kind == "living":
                    self._safe_before = fields["segment"]
                    return [from_fields(AttemptStarted, started) for started in fields["attempts"]]
            if not is_alive:
                return []  # it was exiting; the journal has everything
        raise Unavailable("the runner does not answer")

    def lose(self) -> None:
        """Close the connection of a dead runner; `replace` starts another one."""
        self._wire.close()
        self.is_connected = False

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        if not self.is_connected:  # it never began, so recovery returns it to the queue
            for descriptor in lease:
                os.close(descriptor)
            return
        if order.context not in self._known_contexts:
            is_full = len(self._known_contexts) >= MAX_CONTEXTS
            if is_full:
                self._known_contexts.clear()
            self._known_contexts.add(order.context)
            fields = {"id": order.context, "forget_others": is_full, **context._asdict()}
            self._wire.send("context", fields)
        settings = order.settings.changes()
        fields = {**order._asdict(), "leases": len(lease), "settings": settings}
        self._wire.send("launch", fields, lease)

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        if not self.is_connected:
            return  # its jobs are stopped as orphans, or have ended
        self._wire.send("stop", {"attempt": attempt, "reason": reason, "grace": grace})

    def pause(self, attempt: int, seconds: float) -> None:
        if self.is_connected:
            self._wire.send("pause", {"attempt": attempt, "seconds": seconds})

    def resume(self, attempt: int) -> None:
        if self.is_connected:
            self._wire.send("resume", {"attempt": attempt})

    def events(self) -> tuple[list[RunnerEvent], bool]:
        """(events, whether the runner is alive)."""
        if not self.is_connected:
            return [], False
        self._wire.flush()
        messages, is_alive = self._wire.receive()
        return [event for m in messages if (event := self._decode(*m)) is not None], is_alive

    def _decode(self, kind: str, fields: dict[str, Any]) -> RunnerEvent | None:
        try:
            if kind == "ended":
                return from_fields(Outcome, fields)
            if kind == "begun":
                return from_fields(AttemptStarted, fields)
            if kind == "refused":
                return from_fields(Refused, fields)
            if kind == "stuck":
                return from_fields(Stuck, fields)
            if kind == "rolled":
                self._safe_before = fields["segment"]
            elif kind == "problem":
                self._problem = str(fields["text"])
            elif kind != "living" and kind not in self._unknown:
                self._unknown.add(kind)
                note(f"ignoring a message of unknown kind `{kind}` from the runner")
        except (ValueError, KeyError) as error:
            note(f"ignoring an invalid message from the runner: {error}")
        return None

    def replace(self) -> None:
        """Start a new runner; raises OSError or Conflict if that is not possible now."""
        self._wire = self._connect(0.0)
        self.is_connected = True

    @property
    def is_of_another_release(self) -> bool:
        """Whether the runner is from before an upgrade; it may not support newer orders."""
        return (
            self.is_connected
            and not self.is_fresh
            and self._wire.protocol is not None
            and self._wire.release != __version__
        )

    def renew(self) -> None:
        """Replace a runner without jobs by one of this release. It exits when we disconnect."""
        pid = locks.holder(self._folder, locks.RUNNER_LOCK)
        self.close()
        self.is_connected = False
        deadline = time.monotonic() + _CONNECT_SECONDS
        while pid is not None and locks.holder(self._folder, locks.RUNNER_LOCK) == pid:
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self._wire = self._connect(_CONNECT_SECONDS)
        self.is_connected = True

    def committed(self) -> None:
        """All received events are in the database: remove older journal segments."""
        if self._safe_before is not None:
            with suppress(OSError):  # a read-only disk; removed with later segments
                remove_before(self._folder, self._safe_before)
            self._safe_before = None

    def journal(self) -> list[JournalRecord]:
        return list(read_journal(self._folder))

    def forget_journal(self) -> None:
        """Clear the journal after a recovery; keeps the newest segment."""
        with suppress(OSError):
            remove_before(self._folder, max(segments(self._folder), default=0))

    def close(self) -> None:
        """Disconnect. The runner and its jobs continue, and it starts no other daemon."""
        if not self.is_connected:
            return
        self._wire.send("bye", {})  # works even while the runner is starting
        self._wire.close()


def release_runner(folder: str) -> int | None:
    """For a client, if no daemon is running: keep the runner from starting one. Returns its PID.

    A runner whose daemon was killed starts another one, perhaps after a delay. A client that
    connects and sends `bye` prevents that. Raises Unavailable if the runner does not answer.
    """
    deadline = time.monotonic() + _CONNECT_SECONDS
    while (pid := locks.holder(folder, locks.RUNNER_LOCK)) is not None:
        try:
            with connect(folder, SOCKET_NAME) as connection:
                connection.sendall(b'["bye",{}]\n')
            return pid
        except OSError:  # it holds the lock: it is starting or exiting
            if time.monotonic() > deadline:
                raise Unavailable(f"the runner (pid {pid}) does not answer") from None
            time.sleep(0.01)
    return None


def starting_daemons(runner: int, restart: str) -> list[int]:
    """Daemons that a runner has started and that do not hold their lock yet."""
    found = []
    for pid in job_processes.children(runner):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if restart.encode() in words:
            found.append(pid)
    return found
