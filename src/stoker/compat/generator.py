"""Jobs of a generator that may take its time: it runs in a process of its own.

In ours it would keep signals and ended jobs waiting, and a thread would see our folder, mask and
children change. The process ends with ours, whatever happens.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable, Iterable

from stoker.compat.jobs import Job

_PR_SET_PDEATHSIG = 1
_READ = 1 << 16
_LENGTH = struct.Struct("=I")


class GeneratedJobs:
    """A source of jobs. Make it before the run: the generator begins here and now."""

    def __init__(self, generate: Callable[[], Iterable[Job]]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            _generate(generate, writing, parent)
        os.close(writing)
        self._handle = os.pidfd_open(self.pid)
        self.descriptor = reading
        self._rest = b""
        self.at_end = False
        self.failure: str | None = None  # the traceback, if the generator raised something

    def read(self) -> list[Job]:
        data = os.read(self.descriptor, _READ)
        if not data:
            self.at_end = True
            return []
        found: list[Job] = []
        data = self._rest + data
        start = 0
        while len(data) >= start + _LENGTH.size:
            end = start + _LENGTH.size + _LENGTH.unpack_from(data, start)[0]
            if len(data) < end:
                break
            item = pickle.loads(data[start + _LENGTH.size : end])
            if isinstance(item, Job):
                found.append(item)
            else:
                self.failure = item
            start = end
        self._rest = data[start:]
        return found

    def close(self) -> None:
        """End the generator, if it has not ended yet."""
        self.at_end = True
        try:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # the engine has seen it end
        os.close(self._handle)
        os.close(self.descriptor)


def _generate(generate: Callable[[], Iterable[Job]], writing: int, parent: int) -> None:
    """In the child: never returns."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent, which ends us
        if os.getppid() == parent:
            for job in generate():
                _send(writing, job)
    except BrokenPipeError:
        pass
    except BaseException:
        import traceback

        _send(writing, traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _send(writing: int, item: object) -> None:
    data = pickle.dumps(item)
    data = _LENGTH.pack(len(data)) + data
    while data:
        data = data[os.write(writing, data) :]
