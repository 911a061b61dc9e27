"""Where the jobs of `hog` come from: a file, a yielder, or the pipe of the decorator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator

from stoker.compat.generator import GeneratedJobs
from stoker.compat.hog_options import Unusable
from stoker.compat.job_sources import JobSource, LineJobs
from stoker.compat.jobs import Job

Make = Callable[[str], Job | None]
_DONE = Job("", key="done")  # a yielder came to its end


def open_jobs(options: object, make: Make) -> JobSource:
    """The jobs that the options name; `make` numbers them. Unusable when they cannot be had."""
    path = getattr(options, "job_file", None)
    if path is not None:
        return LineJobs(_open(path), lambda line: _from_line(line, make))
    pipe = getattr(options, "job_pipe", None)
    if pipe is not None:
        return PipedJobs(pipe, make)
    return YieldedJobs(str(getattr(options, "job_yielder", "")), make)


def _open(path: str) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(descriptor, 0)
    except OSError as error:
        raise Unusable(f"cannot read the job file `{path}`: {error.strerror}") from None
    return descriptor


def _from_line(line: str, make: Make) -> Job | None:
    command = line.strip()
    return make(command) if command and not command.startswith("#") else None


class PipedJobs:
    """Commands that end with a NUL byte; the first cut one means that the sender died."""

    pid = None

    def __init__(self, descriptor: int, make: Make) -> None:
        self.descriptor = descriptor
        self._make = make
        self._rest = b""
        self.at_end = False

    def read(self) -> list[Job]:
        data = os.read(self.descriptor, 1 << 16)
        self.at_end = not data
        *whole, self._rest = (self._rest + data).split(b"\0")
        made = [self._make(os.fsdecode(command)) for command in whole]
        return [job for job in made if job is not None]

    def close(self) -> None:
        self.at_end = True


class YieldedJobs(GeneratedJobs):
    """What yielder() of a file yields, each as soon as it does."""

    def __init__(self, path: str, make: Make) -> None:
        file = path if os.path.isfile(path) or not os.path.isfile(f"{path}.py") else f"{path}.py"
        if not os.path.isfile(file):
            raise Unusable(f"there is no file `{path}` with a yielder")
        self._is_done = False
        reading, writing = os.pipe2(os.O_CLOEXEC)
        super().__init__(lambda: _run_yielder(file, make, writing))
        os.close(writing)
        is_ready = os.read(reading, 1)  # an import is worth the wait: if it fails, nothing is begun
        os.close(reading)
        if not is_ready:
            while not self.at_end and self.failure is None:
                self.read()
            self.close()
            raise Unusable(f"cannot use the yielder of `{path}`: {self.trouble}",
                           "it needs a function `yielder` that yields commands")  # fmt: skip

    @property
    def trouble(self) -> str | None:
        """What the yielder raised, and where."""
        if self.failure is None:
            return None if self._is_done else "its process was killed"
        lines = self.failure.strip().splitlines()
        where = [line.strip() for line in lines if line.startswith('  File "')]
        return f"{lines[-1]} ({where[-1]})" if where else lines[-1]

    def read(self) -> list[Job]:
        found = super().read()
        if found and found[-1] == _DONE:
            self._is_done = True
            found.pop()
        return found


def load_module(path: str) -> object:
    """A module from a file, by its path: its name may also be that of another module."""
    from importlib.util import module_from_spec, spec_from_file_location

    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run_yielder(path: str, make: Make, is_ready: int) -> Iterator[Job]:
    """In a process of its own."""
    yielder: Callable[[], Iterable[object]] = load_module(path).yielder  # type: ignore[attr-defined]
    os.write(is_ready, b".")
    for command in yielder():
        job = make(str(command))
        if job is not None:
            yield job
    yield _DONE
