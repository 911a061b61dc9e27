"""The engine of one `start`, in a process of its own: `python -m ... SOCKET DEVICES`.

The program that calls `start` may be a web server with threads, signal handlers and children of its
own; none of that has to know of ours. It sends one instance after the other and is told where each
starts and how it ends, in lines of JSON:

    -> {"job": 1, "argv": [...], "env": {...}, "log": "...", "pickle": "...", "folder": "...",
        "stage": [...], "params": "..."}
    <- {"starting": 1, "device": "0"}
    <- {"ended": 1, "why": null}
    <- {"says": "..."}, {"error": "...", "hint": "..."}
    -> {"end": true}

When that program is gone without a word, so are its tasks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any

from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.jobs import End, Job
from stoker.compat.gpu_task_scheduler import task_file as pickles
from stoker.compat.gpu_task_scheduler.folder_records import Folder, Stage
from stoker.core.record import Record
from stoker.errors import Error

_READ = 1 << 16


class _Kept(Record):
    """What is kept as long as a job is not over."""

    pickle: str
    folder: Folder


class _Program(Reporter):
    """The program that called `start`: where jobs come from, and who is told."""

    pid = None

    def __init__(self, channel: socket.socket, parent: int) -> None:
        self._channel = channel
        self._rest = b""
        self._known: dict[int, _Kept] = {}
        self.at_end = False
        self._is_alone = False  # that program is gone
        self._either = select.epoll()
        self._either.register(channel, select.EPOLLIN)
        # Not only the socket: a fork of the program may have that as well, and live on.
        self._watch = os.pidfd_open(parent)
        self._either.register(self._watch, select.EPOLLIN)
        self.descriptor = self._either.fileno()

    def read(self) -> list[Job]:
        if self._watch in dict(self._either.poll(0)):
            return self._leave()
        data = self._channel.recv(_READ)
        if not data:
            return self._leave()
        *lines, self._rest = (self._rest + data).split(b"\n")
        orders = [json.loads(line) for line in lines]
        self.at_end = any("end" in order for order in orders)
        return [self._job(order) for order in orders if "job" in order]

    def _leave(self) -> list[Job]:
        self.at_end = self._is_alone = True
        signal.raise_signal(signal.SIGTERM)
        return []

    def _job(self, order: dict[str, Any]) -> Job:
        number = order["job"]
        folder = Folder(order["folder"], Stage(*order["stage"]), order["params"])
        folder.hold()
        self._known[number] = _Kept(order["pickle"], folder)
        env = tuple(order["env"].items())
        return Job(tuple(order["argv"]), stdout=order["log"], env=env, key=number)

    def close(self) -> None:
        self.at_end = True
        for kept in self._known.values():  # never started
            pickles.remove(kept.pickle)
            self._let_go(kept.folder)

    def starting(self, job: Job, device: str) -> None:
        self.send(starting=job.key, device=device)

    def ended(self, job: Job, device: str, end: End) -> None:
        assert isinstance(job.key, int)
        kept = self._known.pop(job.key)
        pickles.keep(kept.pickle, device)
        self._let_go(kept.folder)
        self.send(ended=job.key, why=None if end.is_good else _words(end))

    def _let_go(self, folder: Folder) -> None:
        """How it ended is for the program to note; we do if there is none any more."""
        if self._is_alone:
            folder.leave()
        else:
            folder.restore()
            folder.release()

    def notice(self, text: str) -> None:
        self.send(says=text)

    def send(self, **what: object) -> None:
        try:
            self._channel.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            pass  # it is gone, which `read` finds out


def _words(end: End) -> str:
    if end.detail:
        return end.detail
    if end.signal is not None:
        return f"killed by {signal.Signals(end.signal).name}"
    return f"exit code {end.code}"


def main(words: list[str]) -> int:
    channel = socket.socket(fileno=int(words[0]))
    program = _Program(channel, os.getppid())
    try:
        ForegroundRun(json.loads(words[1]), program, program).work()
    except Error as error:
        program.send(error=error.message, hint=error.hint)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
