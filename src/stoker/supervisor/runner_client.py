"""The daemon's side of the runner: start it or find it, give orders, hear facts.

If the runner dies, its jobs fall to the daemon (or to init, when an older daemon had started the
runner); `orphans` then watches them, and a new runner takes further orders.
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
from stoker.core.fields import from_fields
from stoker.core.model import Context, Outcome
from stoker.errors import Unavailable
from stoker.supervisor import job_processes, locks
from stoker.supervisor.journal import JournalRecord, read_journal, remove_before, segments
from stoker.supervisor.messages import AttemptStarted, Order, Refused, RunnerEvent, Stuck
from stoker.supervisor.runner import SOCKET_NAME
from stoker.supervisor.sockets import connect
from stoker.supervisor.wire import Wire, note

_CONNECT_PATIENCE_SECONDS = 10.0


class RunnerClient:
    def __init__(self, folder: str, tag_base: int, log_limit: int, restart: list[str]) -> None:
        self._folder = folder
        self._restart = restart
        self._tag_base = tag_base
        self._log_limit = log_limit
        self._known_contexts: set[int] = set()
        self._safe_before: int | None = None
        self._unknown: set[str] = set()  # kinds of messages that were noted already
        self.is_fresh = False
        self.is_connected = True
        self._trouble: str | None = None
        self._wire = self._connect(_CONNECT_PATIENCE_SECONDS)

    def fileno(self) -> int:
        return self._wire.fileno()

    @property
    def has_backlog(self) -> bool:
        return self.is_connected and self._wire.has_backlog

    def take_trouble(self) -> str | None:
        """What the runner reported about itself since the last call."""
        trouble, self._trouble = self._trouble, None
        return trouble

    def _connect(self, patience: float) -> Wire:
        """The living runner, or a new one; OSError or Conflict when neither can be had."""
        self._known_contexts.clear()
        give_up = time.monotonic() + patience
        while locks.holder(self._folder, locks.RUNNER_LOCK) is not None:
            try:
                self.is_fresh = False
                return Wire(connect(self._folder, SOCKET_NAME))
            except OSError:
                if time.monotonic() >= give_up:
                    raise
                time.sleep(0.01)  # it holds the lock and is about to listen, or about to leave
        return self._start()

    def _start(self) -> Wire:
        # Locked before it exists: the next daemon finds it, however slowly it comes up, and does
        # not judge orders as never carried out that it is still going to read.
        lock = locks.take(self._folder, locks.RUNNER_LOCK)
        os.ftruncate(lock, 0)
        os.set_inheritable(lock, True)
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        argv = [sys.executable, "-P", "-m", "stoker.supervisor.runner", self._folder,
                str(self._tag_base), str(self._log_limit), str(theirs.fileno()),
                str(lock), *self._restart]  # fmt: skip
        try:
            pid = os.posix_spawn(sys.executable, argv, os.environ)
            with suppress(OSError):  # only for people who look
                os.pwrite(lock, str(pid).encode(), 0)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(lock)
        self.is_fresh = True
        wire = Wire(ours)
        wire.send_at_once("list")  # the files may be of 0.1, whose runner sends no greeting
        return wire

    def living(self) -> list[AttemptStarted]:
        """What the runner has alive. After this answer every earlier order is in the journal."""
        self._wire.send_at_once("list")
        give_up = time.monotonic() + _CONNECT_PATIENCE_SECONDS
        while time.monotonic() < give_up:
            select.select([self._wire], [], [], 1.0)
            self._wire.flush()
            messages, alive = self._wire.receive()
            for kind, fields in messages:  # what else it says now is in the journal as well
                if kind == "living":
                    self._safe_before = fields["segment"]
                    return [from_fields(AttemptStarted, begun) for begun in fields["attempts"]]
            if not alive:
                return []  # it was just leaving; the journal has everything
        raise Unavailable("the runner does not answer")

    def lose(self) -> None:
        """The runner died; `replace` finds another one."""
        self._wire.close()
        self.is_connected = False

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        if not self.is_connected:  # recovery puts it back into the queue: it never began
            for descriptor in lease:
                os.close(descriptor)
            return
        if order.context not in self._known_contexts:
            self._known_contexts.add(order.context)
            self._wire.send("context", {"id": order.context, **context._asdict()})
        self._wire.send("launch", {"leases": len(lease), **order._asdict()}, lease)

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        if not self.is_connected:
            return  # what it parented is stopped as an orphan, or has ended
        self._wire.send("stop", {"attempt": attempt, "reason": reason, "grace": grace})

    def events(self) -> tuple[list[RunnerEvent], bool]:
        """(what happened, whether the runner is still there)."""
        if not self.is_connected:
            return [], False
        self._wire.flush()
        messages, alive = self._wire.receive()
        return [fact for m in messages if (fact := self._fact(*m)) is not None], alive

    def _fact(self, kind: str, fields: dict[str, Any]) -> RunnerEvent | None:
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
            elif kind == "trouble":
                self._trouble = str(fields["text"])
            elif kind != "living" and kind not in self._unknown:
                self._unknown.add(kind)
                note(f"the runner sent a message of unknown kind `{kind}`; it is ignored")
        except (ValueError, KeyError) as error:
            note(f"a message of the runner is ignored: {error}")
        return None

    def replace(self) -> None:
        """Start a new runner; OSError or Conflict when that is not possible now."""
        self._wire = self._connect(0.0)
        self.is_connected = True

    @property
    def is_of_another_release(self) -> bool:
        """Whether an upgrade left this runner behind; it may lack what newer orders ask for."""
        return (
            self.is_connected
            and not self.is_fresh
            and self._wire.protocol is not None
            and (self._wire.release != __version__)
        )

    def renew(self) -> None:
        """Replace a runner that has no jobs by one of this release. It leaves when we do."""
        pid = locks.holder(self._folder, locks.RUNNER_LOCK)
        self.close()
        self.is_connected = False
        give_up = time.monotonic() + _CONNECT_PATIENCE_SECONDS
        while pid is not None and locks.holder(self._folder, locks.RUNNER_LOCK) == pid:
            if time.monotonic() > give_up:
                break
            time.sleep(0.01)
        self._wire = self._connect(_CONNECT_PATIENCE_SECONDS)
        self.is_connected = True

    def committed(self) -> None:
        """Everything heard so far is in the database: older journal segments may go."""
        if self._safe_before is not None:
            with suppress(OSError):  # a read-only disk; later segments take these with them
                remove_before(self._folder, self._safe_before)
            self._safe_before = None

    def journal(self) -> list[JournalRecord]:
        return list(read_journal(self._folder))

    def forget_journal(self) -> None:
        """After a recovery that put everything into the database; keeps the newest segment."""
        with suppress(OSError):
            remove_before(self._folder, max(segments(self._folder), default=0))

    def close(self) -> None:
        """Disconnect. The runner and its jobs continue, and it starts no other daemon."""
        if not self.is_connected:
            return
        self._wire.send_at_once("bye")  # also to a runner that is still starting
        self._wire.close()


def release_runner(folder: str) -> int | None:
    """From a client, when no daemon runs: keep the runner from starting one. Returns its PID.

    A runner whose daemon was killed starts another one, perhaps after a pause. Any client that
    connects and sends `bye` prevents that. Raises Unavailable when the runner does not answer.
    """
    give_up = time.monotonic() + _CONNECT_PATIENCE_SECONDS
    while (pid := locks.holder(folder, locks.RUNNER_LOCK)) is not None:
        try:
            with connect(folder, SOCKET_NAME) as connection:
                connection.sendall(b'["bye",{}]\n')
            return pid
        except OSError:  # it holds the lock and is about to listen, or about to leave
            if time.monotonic() > give_up:
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
