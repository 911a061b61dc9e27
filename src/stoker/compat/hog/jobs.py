"""The jobs of `hog`: their sources (a file, a yielder, a pipe) and their output folders."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import select
import signal
import sys
from collections.abc import Callable

from stoker.compat.foreground.jobs import End, Job, JobSource, LineJobs, open_lines
from stoker.compat.hog.options import Unusable
from stoker.record import Record
from stoker.text.byte_text import to_system

SUCCESS, FAILURE, HOOKS = "SUCCESS", "FAILURE", "HOOKS"

Make = Callable[[str], Job | None]
_READ = 1 << 16
_EXIT_SECONDS = 10.0  # time for the exit handlers of a yielder


def open_jobs(options: argparse.Namespace, make: Make) -> JobSource:
    """Open the jobs that the options name; `make` numbers them. Raises Unusable."""
    if options.job_pipe is not None:
        return PipedJobs(options.job_pipe, make)
    if options.job_yielder is not None:
        return YieldedJobs(options.job_yielder, make)
    try:
        descriptor = open_lines(options.job_file)
    except OSError as error:
        text = f"cannot read the job file `{options.job_file}`: {error.strerror}"
        raise Unusable(text) from None
    return LineJobs(descriptor, lambda line: _from_line(line, make))


def _from_line(line: str, make: Make) -> Job | None:
    command = line.strip()
    return make(command) if command and not command.startswith("#") else None


class PipedJobs:
    """Commands of another process, one JSON value per line; a partial last line is ignored."""

    pid: int | None = None

    def __init__(self, descriptor: int, make: Make) -> None:
        self.descriptor = descriptor
        self._make = make
        self._rest = b""
        self.at_end = False

    def read(self) -> list[Job]:
        data = os.read(self.descriptor, _READ)
        self.at_end = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = [self._receive(json.loads(line)) for line in lines]
        return [job for job in found if job is not None]

    def _receive(self, item: object) -> Job | None:
        # A Python string may have characters that the locale encoding lacks.
        return self._make(os.fsdecode(to_system(str(item))))

    def close(self) -> None:
        self.at_end = True


class YieldedJobs(PipedJobs):
    """The commands that yielder() of a file yields; it runs in user_code.py."""

    def __init__(self, path: str, make: Make) -> None:
        file = path if os.path.isfile(path) or not os.path.isfile(f"{path}.py") else f"{path}.py"
        if not os.path.isfile(file):
            raise Unusable(f"there is no yielder file `{path}`")
        reading, writing = os.pipe2(os.O_CLOEXEC)
        super().__init__(reading, make)
        self._is_ready = self._is_done = False
        self._failure: str | None = None
        self.pid = _start(file, writing)
        os.close(writing)
        self._handle = os.pidfd_open(self.pid)
        self._receive_first()
        if not self._is_ready:  # it failed before its first command
            self.close()
            raise Unusable(
                f"cannot use the yielder of `{path}`: {self.error}",
                "it needs a function `yielder` that yields commands",
            )

    @property
    def error(self) -> str | None:
        """The exception of the yielder and its location; None if it finished."""
        if self._failure is None and not self._is_done:
            return "its process was killed"
        return self._failure

    def _receive_first(self) -> None:
        """Read the first line only, byte by byte."""
        line = b""
        while (byte := os.read(self.descriptor, 1)) and byte != b"\n":
            line += byte
        if byte:
            self._receive(json.loads(line))

    def _receive(self, item: object) -> Job | None:
        if not isinstance(item, dict):
            return super()._receive(item)
        self._is_ready |= "is_ready" in item
        self._is_done |= "is_done" in item
        self._failure = item.get("failed")
        return None

    def close(self) -> None:
        """Kill the yielder; one that has finished gets time to run its exit handlers."""
        self.at_end = True
        if self._is_done or self._failure is not None:
            select.select([self._handle], [], [], _EXIT_SECONDS)
        try:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.waitpid(self.pid or 0, 0)
        except ChildProcessError:
            pass  # already reaped by the scheduling loop
        os.close(self._handle)
        os.close(self.descriptor)


def _start(file: str, writing: int) -> int:
    words = [sys.executable, "-P", "-m", "stoker.compat.hog.user_code", "yield", file, str(writing)]
    # Ctrl-C is handled by hog, which ends the yielder: the child inherits SIG_IGN.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return os.posix_spawn(
            sys.executable,
            [*words, str(os.getpid())],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, writing, writing)],
        )
    finally:
        signal.signal(signal.SIGINT, handler)


# -- output folders --------------------------------------------------------------------------------


class Folder(Record):
    """The folder of one job: INFO, OUT, ERR, and SUCCESS or FAILURE."""

    output_dir: str
    name: str  # prefix and number

    def file(self, name: str) -> str:
        return os.path.join(self.output_dir, self.name, name)

    @property
    def out(self) -> str:
        return self.file(f"{self.name}.OUT")

    @property
    def err(self) -> str:
        return self.file(f"{self.name}.ERR")

    def begin(self, gpu: str, command: str) -> None:
        """Create the folder and INFO before the job runs; removes the markers of an earlier run."""
        os.makedirs(os.path.dirname(self.out), exist_ok=True)
        for name in (SUCCESS, FAILURE, HOOKS):
            try:
                os.unlink(self.file(name))
            except FileNotFoundError:
                pass
        text = f"job name: {self.name}\nran on gpu: {gpu}\ncommand: {command}\n"
        self._write_info("wb", text)

    def finish(self, end: End, began: datetime.datetime, ended: datetime.datetime) -> None:
        text = f"exit code: {end.returncode}\nstarted: {began}\nended: {ended}\n"
        self._write_info("ab", text)
        with open(self.file(SUCCESS if end.is_good else FAILURE), "wb"):
            pass

    def has_succeeded(self, command: str) -> bool:
        """Whether an earlier run of the same command succeeded in this folder."""
        if not os.path.exists(self.file(SUCCESS)):
            return False
        try:
            with open(self.file("INFO"), "rb") as file:
                text = os.fsdecode(file.read())
        except OSError:
            return False
        recorded = text.partition("\ncommand: ")[2]
        return recorded == f"{command}\n" or recorded.startswith(f"{command}\nexit code: 0\n")

    def _write_info(self, mode: str, text: str) -> None:
        with open(self.file("INFO"), mode) as file:
            file.write(to_system(text))
