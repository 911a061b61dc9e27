"""A runner with the protocol of release 0.1: messages are lists, decoded by position and length.

Do not change its behavior: like the real one, it must crash on a message that is longer than it
expects. `sitecustomize` (written by the test) runs it in place of the current runner.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from typing import Any

from stoker.boot import boot_id
from stoker.core.model import Context
from stoker.supervisor.children import Children
from stoker.supervisor.journal import Journal
from stoker.supervisor.messages import AttemptStarted, Order
from stoker.supervisor.sockets import listen
from stoker.supervisor.spawn import encode_environment
from stoker.supervisor.subreaper import become_subreaper


class Runner:
    def __init__(self, folder: str, tag: int, first: socket.socket, restart: list[str]) -> None:
        self._restart = restart
        self._journal = Journal(folder)
        self._children = Children(tag, 1 << 30)
        self._listener = listen(folder, "runner.sock")
        self._daemon: socket.socket | None = first
        self._contexts: dict[int, Context] = {}
        self._is_released = False

    def work(self) -> None:
        unread = b""
        while self._daemon is not None or len(self._children):
            waits = self._listener if self._daemon is None else self._daemon
            ready, _, _ = select.select([waits], [], [], 0.02)
            for outcome in [*self._children.enforce_limits(), *self._children.reap()]:
                self._journal.ended(outcome)
                self._send("ended", *outcome)
            if self._daemon is None:
                if ready:
                    self._daemon, unread, self._is_released = self._listener.accept()[0], b"", False
                continue
            if not ready:
                continue
            data = self._daemon.recv(1 << 16)
            if not data:
                self._daemon.close()
                self._daemon = None
                if not self._is_released:
                    os.posix_spawn(self._restart[0], self._restart, os.environ)
                continue
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                self._handle(*json.loads(line))

    def _handle(self, kind: str, *rest: Any) -> None:
        if kind == "launch":
            _, *fields = rest
            (attempt, job, number, argv, shell, context, env, devices, stdout, stderr, own_log,
             time_limit, grace, keep_children, warn, folder) = fields  # fmt: skip
            order = Order(
                attempt=attempt,
                job=job,
                number=number,
                argv=tuple(argv),
                shell=shell,
                context=context,
                env=env,
                devices=tuple(devices),
                stdout=stdout,
                stderr=stderr,
                own_log=own_log,
                time_limit=time_limit,
                grace=grace,
                keep_children=keep_children,
                warn=warn,
                folder=folder,
            )
            self._launch(order)
        elif kind == "context":
            number, cwd, variables, umask, shell = rest
            self._contexts[number] = Context(cwd, tuple(map(tuple, variables)), umask, shell)
        elif kind == "stop":
            attempt, reason, grace = rest
            self._children.stop(attempt, reason, grace)
        elif kind == "bye":
            self._is_released = True
        elif kind == "list":
            attempts = [list(begun) for begun in self._children.live_attempts()]
            self._send("living", attempts, self._journal.segment)

    def _launch(self, order: Order) -> None:
        context = self._contexts[order.context]
        env = encode_environment(context.env) | encode_environment(order.env.items())
        self._journal.begun(order, time.time(), time.monotonic(), boot_id())
        event = self._children.start(order, context, env, [])
        assert isinstance(event, AttemptStarted), event
        self._send("begun", *event)

    def _send(self, *message: object) -> None:
        if self._daemon is not None:
            try:
                self._daemon.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                pass


def main(arguments: list[str]) -> None:
    folder, tag, _, descriptor, lock, *restart = arguments
    os.setpgid(0, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(int(lock), False)
    become_subreaper()
    first = socket.socket(fileno=int(descriptor))
    first.set_inheritable(False)
    Runner(folder, int(tag), first, restart).work()
