"""The engine of one `start`, in a process of its own: `python -m ... SOCKET DEVICES`.

The program that calls `start` may be a web server with its own threads, signal handlers and
children, which the engine must not disturb. The program sends instances and receives events, as
lines of JSON:

    -> {"job": 1, "argv": [...], "env": {...}, "log": "...", "pickle": "...", "folder": "...",
        "stage": "...", "params": "..."}
    <- {"starting": 1, "device": "0"}
    <- {"ended": 1, "why": null}
    <- {"says": "..."}, {"error": "...", "hint": "..."}
    -> {"end": true}

If the program dies, the engine ends its tasks.
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
from stoker.compat.gpu_task_scheduler.folder_records import Folder
from stoker.errors import Error
from stoker.record import Record

_READ = 1 << 16


class _PendingJob(Record):
    """The task file and the folder of a job that has not ended."""

    pickle: str
    folder: Folder


class _Program(Reporter):
    """The program that called `start`: the source of the jobs and the receiver of events."""

    pid = None

    def __init__(self, channel: socket.socket, parent: int) -> None:
        self._channel = channel
        self._rest = b""
        self._pending: dict[int, _PendingJob] = {}
        self.at_end = False
        self._is_orphaned = False  # the program died
        self._poll = select.epoll()
        self._poll.register(channel, select.EPOLLIN)
        # Also watch the process: a fork of the program may keep the socket open.
        self._pidfd = os.pidfd_open(parent)
        self._poll.register(self._pidfd, select.EPOLLIN)
        self.descriptor = self._poll.fileno()

    def read(self) -> list[Job]:
        if self._pidfd in dict(self._poll.poll(0)):
            return self._stop()
        data = self._channel.recv(_READ)
        if not data:
            return self._stop()
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        self.at_end = any("end" in message for message in messages)
        return [self._job(message) for message in messages if "job" in message]

    def _stop(self) -> list[Job]:
        self.at_end = self._is_orphaned = True
        signal.raise_signal(signal.SIGTERM)
        return []

    def _job(self, message: dict[str, Any]) -> Job:
        number = message["job"]
        folder = Folder(message["folder"], message["stage"], message["params"])
        folder.hold()
        self._pending[number] = _PendingJob(message["pickle"], folder)
        env = tuple(message["env"].items())
        return Job(tuple(message["argv"]), stdout=message["log"], env=env, key=number)

    def close(self) -> None:
        self.at_end = True
        for pending in self._pending.values():  # never started
            pickles.remove(pending.pickle)
            self._release(pending.folder)

    def starting(self, job: Job, device: str) -> None:
        self.send(starting=job.key, device=device)

    def ended(self, job: Job, device: str, end: End) -> None:
        assert isinstance(job.key, int)
        pending = self._pending.pop(job.key)
        pickles.keep(pending.pickle, device)
        self._release(pending.folder)
        self.send(ended=job.key, why=None if end.is_good else _describe(end))

    def _release(self, folder: Folder) -> None:
        """Release the folder; the program records the end, unless it has died."""
        if self._is_orphaned:
            folder.leave()
        else:
            folder.restore()
            folder.release()

    def notice(self, text: str) -> None:
        self.send(says=text)

    def send(self, **event: object) -> None:
        try:
            self._channel.sendall(json.dumps(event).encode() + b"\n")
        except OSError:
            pass  # the program died, which `read` notices


def _describe(end: End) -> str:
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
