"""Runs `stoker` commands in forks of a process that has already imported Stoker.

Most of the time of a short command is the start of Python and its imports, which are the same in
all tests. A fork has everything else that a process has: environment, working folder, streams,
signals and exit code. A lab with `forks = True` uses it, except for `Lab.popen`.

done = CommandServer("stoker.cli").run(["ls", "--json"], env, cwd, stdin=None)
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Variables that Python, the C library, the loader or `stoker.testing` read when a process starts.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "STOKER_FAILPOINT")
# Not that of a test: a lab kills all processes whose environment has its folder.
_ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("STOKER_")}
_LARGEST_MESSAGE = 100_000  # the kernel takes a little more in one piece
_PIPE_SIZE = 65_536
_NUMBER = struct.Struct("i")


class Fork:
    """A command that runs in a fork."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self.pid = self._next()

    def wait(self) -> int:
        """Wait until it exits; its exit code, or minus the number of a signal."""
        with self._answers:
            return os.waitstatus_to_exitcode(self._next())

    def has_ended(self) -> bool:
        return bool(select.select([self._answers], [], [], 0)[0])

    def kill(self) -> None:
        if not self.has_ended():  # else its PID may belong to another process
            os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def _next(self) -> int:
        return int(_NUMBER.unpack(self._answers.recv(_NUMBER.size))[0])


class CommandServer:
    """The process starts with the first command, and ends with the process that started it."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()  # some tests run commands in several threads

    def run(
        self, words: Sequence[str | bytes], env: Mapping[str, str], cwd: Path, stdin: bytes | None
    ) -> subprocess.CompletedProcess[bytes] | None:
        """Run `stoker WORDS`; None if this command needs a Python of its own."""
        if len(stdin or b"") > _PIPE_SIZE:
            return None
        stdout, stderr = os.pipe(), os.pipe()
        streams = _filled_pipe(stdin), stdout[1], stderr[1]
        fork = self.start(words, env, cwd, streams)
        for descriptor in streams:
            os.close(descriptor)
        output, errors = _read_all(stdout[0], stderr[0])
        if fork is None:
            return None
        return subprocess.CompletedProcess(["stoker", *words], fork.wait(), output, errors)

    def start(
        self,
        words: Sequence[str | bytes],
        env: Mapping[str, str],
        cwd: Path,
        streams: tuple[int, int, int],
    ) -> Fork | None:
        """Start `stoker WORDS`; None if this command needs a Python of its own."""
        message = pickle.dumps((list(map(os.fsdecode, words)), dict(env), str(cwd), _umask()))
        with self._lock:
            if self._socket is None:
                self._socket = _start(self._packages)
        if len(message) > _LARGEST_MESSAGE or _start_variables(env) != _start_variables(
            _ENVIRONMENT
        ):
            return None
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [message], [*streams, theirs.fileno()])
        return Fork(ours)


def _umask() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))


def _start_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


def _start(packages: tuple[str, ...]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server", str(theirs.fileno()), *packages],
            pass_fds=[theirs.fileno()],
            env=_ENVIRONMENT,
            cwd=Path(__file__).resolve().parents[1],
            stdin=subprocess.PIPE,  # Python remembers that it cannot seek in these
            stdout=subprocess.PIPE,
        )

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    return ours


def _filled_pipe(data: bytes | None) -> int:
    """A descriptor from which a command reads the data; /dev/null without data."""
    if data is None:
        return os.open(os.devnull, os.O_RDONLY)
    source, sink = os.pipe()
    with open(sink, "wb") as file:
        file.write(data)
    return source


def _read_all(*descriptors: int) -> list[bytes]:
    """Read from pipes until all processes have closed them."""
    parts: dict[int, list[bytes]] = {descriptor: [] for descriptor in descriptors}
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                parts[key.fd].append(os.read(key.fd, _PIPE_SIZE))
                if not parts[key.fd][-1]:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [b"".join(parts[descriptor]) for descriptor in descriptors]


# -- the process -----------------------------------------------------------------------------------


def _serve(control: socket.socket) -> None:
    """Start commands and report how they ended, until the test process closes its socket."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is not None:
                pid, reply = key.data
                selector.unregister(key.fd)
                os.close(key.fd)
                with reply:
                    _send(reply, os.waitpid(pid, 0)[1])
                continue
            message, descriptors, _, _ = socket.recv_fds(control, 2 * _LARGEST_MESSAGE, 4)
            if not message:
                for other in list(selector.get_map().values()):
                    if other.data is not None:
                        os.kill(other.data[0], signal.SIGKILL)
                return
            pid = os.fork()
            if pid == 0:
                selector.close()
                control.close()
                _become(descriptors[:3], *pickle.loads(message))
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            reply = socket.socket(fileno=descriptors[3])
            _send(reply, pid)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply))


def _send(reply: socket.socket, number: int) -> None:
    try:
        reply.send(_NUMBER.pack(number))
    except BrokenPipeError:
        pass  # the test does not wait for this command


def _preload(packages: list[str]) -> None:
    """Import the modules that commands import."""
    for name in packages:
        package = __import__(name, fromlist=["__path__"])
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            __import__(module.name)
    atexit._clear()  # of modules that a command may not use
    gc.freeze()


def _become(
    streams: list[int], words: list[str], env: dict[str, str], cwd: str, umask: int
) -> None:
    """Run a command in this process as `python -m stoker` would; raises SystemExit."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    os.umask(umask)
    sys.path[0] = cwd
    sys.argv = ["-m", *words]
    runpy.run_module("stoker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _preload(sys.argv[2:])
    _serve(socket.socket(fileno=int(sys.argv[1])))
