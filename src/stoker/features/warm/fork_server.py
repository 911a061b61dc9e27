"""A fork server: imports modules once, then forks a process for each job.

    python [FLAGS] fork_server.py DESCRIPTOR PADDING

It is executed by the interpreter of the jobs, any Python 3.9 or later, in which Stoker may not be
installed. So this file imports only the standard library and loads the two beside it: forked_job.py
turns a forked process into the job, and forked_exit.py ends it.

DESCRIPTOR is a stream socket to the parent of the jobs (fork_servers.py), which sends JSON:

    ["prepare", {...}]  import modules; answered by `ready` or `unfit`
    ["fork", {...}]     start a job; its descriptors come with the message

A job is forked twice, so that it becomes a child of the subreaper that started this server.
"""

from __future__ import annotations

import sys

_AT_START = frozenset(sys.modules)  # what every program finds: it cannot be hidden by a user's file
if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
    del sys.path[0]

import array  # noqa: E402
import builtins  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from stoker.features.warm import forked_exit, forked_job


def _load(name: str) -> Any:
    """Load a file beside this one. It gets no entry in sys.modules: it would hide a user's."""
    path = os.path.join(os.path.dirname(__file__), name + ".py")
    module = type(sys)(name)
    module.__file__ = path
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec", 0, True), module.__dict__)
    return module


if not TYPE_CHECKING:
    forked_job = _load("forked_job")
    forked_exit = _load("forked_exit")

_MAX_OUTPUT = 1 << 16
_DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
_INSTALLED = ("site-packages", "dist-packages")


# -- the server ----------------------------------------------------------------------------------


class Server:
    def __init__(self, descriptor: int) -> None:
        self._channel = socket.socket(fileno=descriptor)
        self._channel.set_inheritable(False)
        self._is_open = True
        self._incoming = b""
        self._descriptors: list[int] = []
        self._files: dict[str, object] = {}  # marks of the source files that were imported
        self.output: tuple[bytes, ...] = (b"", b"")  # what the imports printed
        self.first_path: str | None = None  # sys.path[0] during the imports
        self.open_files: list[object] = []  # of the imported modules
        self._captured = _capture_output()

    def serve(self) -> forked_job.Job | None:
        """Handle requests. Returns the Job in the process of a job; a server returns None."""
        while True:
            for kind, fields in self._receive():
                if kind == "prepare":
                    self._prepare(fields)
                elif kind == "fork":
                    count = fields["descriptors"]
                    given, self._descriptors = self._descriptors[:count], self._descriptors[count:]
                    if self._is_stale():
                        self._send("stale", {})
                        return None
                    job = self._fork(fields, given)
                    if job is not None:
                        return job
            if not self._is_open:
                return None

    def _send(self, kind: str, fields: dict[str, Any]) -> None:
        try:
            self._channel.sendall(json.dumps([kind, fields]).encode() + b"\n")
        except OSError:
            pass  # the other end died; `_receive` notices

    def _receive(self) -> list[Any]:
        """The next messages; closes the channel at its end."""
        try:
            data, ancillary, _, _ = self._channel.recvmsg(
                1 << 16, socket.CMSG_SPACE(400), socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            data, ancillary = b"", []
        for _, _, packed in ancillary:
            numbers = array.array("i")
            numbers.frombytes(packed[: len(packed) - len(packed) % numbers.itemsize])
            self._descriptors += numbers
        if not data:
            self._channel.close()
            self._is_open = False
            return []
        self._incoming += data
        lines = self._incoming.split(b"\n")
        self._incoming = lines.pop()
        return [json.loads(line) for line in lines]

    # -- imports ---------------------------------------------------------------------------------

    def _prepare(self, fields: dict[str, Any]) -> None:
        """Import modules, then report whether this process may be forked."""
        forked_job.failpoint("server.before_imports")
        self.first_path = forked_job.first_path(
            fields["kind"], os.fsdecode(forked_job.system_bytes(fields["program"]))
        )
        if self.first_path is not None:
            sys.path.insert(0, self.first_path)
        with _RandomStates() as states:
            for name in fields["modules"]:
                try:
                    __import__(name)
                except BaseException as error:  # also SystemExit of a module that is a program
                    if fields["required"]:
                        text = str(error) or type(error).__name__
                        self._send("unfit", {"why": f"cannot import `{name}`: {text}"})
                        return
                effect = "started a thread" if _has_threads() else states.changed()
                if effect is not None:
                    why = f"importing `{name}` {effect}"
                    self._send("unfit", {"why": why, "module": name})
                    return
        self.output = _collected_output(self._captured)
        gc.collect()
        self.open_files = forked_exit.open_files()
        gc.freeze()  # collections in jobs do not write to, and so copy, these objects
        reason = _why_unfit()
        if reason is not None:
            self._send("unfit", {"why": reason})
            return
        self._files = _marks(_source_files())
        forked_job.failpoint("server.before_ready")
        self._send("ready", {})

    def _is_stale(self) -> bool:
        """Whether an imported file of the user's project, or an installed package, has changed."""
        return _marks(self._files) != self._files

    # -- jobs ------------------------------------------------------------------------------------

    def _fork(self, fields: dict[str, Any], descriptors: list[int]) -> forked_job.Job | None:
        """Start a job; returns it in its own process and None in the server."""
        forked_job.failpoint("server.before_fork")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries that stop their threads before a fork
            try:
                middle = os.fork()
            except OSError:
                middle = -1  # closing its control socket reports that
            if middle == 0:
                own = os.getpid()
                try:
                    is_job = os.fork() == 0
                except OSError:
                    is_job = False
                if not is_job:
                    os._exit(0)
        if middle:
            if middle > 0:
                os.waitpid(middle, 0)
            for descriptor in descriptors:
                os.close(descriptor)
            forked_job.failpoint("server.after_fork")
            return None
        while os.getppid() == own:  # until the subreaper is our parent
            time.sleep(0.0002)
        self._channel.close()
        for descriptor in self._descriptors:  # of jobs whose requests arrived with this one
            os.close(descriptor)
        return forked_job.Job(fields, descriptors)


class _RandomStates:
    """The states of random number generators when they were imported.

    Each job gets new ones. A module that seeds a generator when it is imported expects its own, so
    a process that has imported it must not be forked.
    """

    def __init__(self) -> None:
        self._readers: dict[str, Callable[[Any], object]] = {
            "random": lambda module: module.getstate(),
            "numpy.random": lambda module: _numpy_state(module.mtrand._rand.get_state()),
            "torch.random": lambda module: module.default_generator.get_state().tolist(),
        }
        self._known: dict[str, object] = {}
        self._import = builtins.__import__

    def __enter__(self) -> _RandomStates:
        builtins.__import__ = self._import_and_look
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import

    def _import_and_look(self, *args: Any, **kwargs: Any) -> Any:
        found = self._import(*args, **kwargs)
        if len(self._known) < len(self._readers):
            self._look()
        return found

    def _look(self) -> None:
        for name, read in self._readers.items():
            is_loaded = _is_loaded(name.partition(".")[0]) and _is_loaded(name)
            if is_loaded and name not in self._known:
                try:
                    self._known[name] = read(sys.modules[name])
                except (AttributeError, TypeError):
                    del self._readers[name]  # another release, or another module of this name
                    return

    def changed(self) -> str | None:
        """What happened to a generator since it was imported; None if nothing did."""
        self._look()
        for name, state in self._known.items():
            if self._readers[name](sys.modules[name]) != state:
                return f"seeded or used `{name}`"
        return None


def _is_loaded(name: str) -> bool:
    """Whether the import of a module has finished."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def _numpy_state(state: Any) -> tuple[bytes, int]:
    return state[1].tobytes(), state[2]


def _capture_output() -> list[int] | None:
    """Redirect stdout and stderr into memory, so that each job can repeat what imports print."""
    try:
        captured = [os.memfd_create("stdout"), os.memfd_create("stderr")]
    except (AttributeError, OSError):
        return None
    for number, descriptor in enumerate(captured, 1):
        os.dup2(descriptor, number)
    return captured


def _collected_output(captured: list[int] | None) -> tuple[bytes, ...]:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if captured is None:
        return (b"", b"")
    output = tuple(os.pread(descriptor, _MAX_OUTPUT, 0) for descriptor in captured)
    for descriptor in captured:
        os.close(descriptor)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)
    return output


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _has_threads() -> bool:
    """Whether a thread would be missing after a fork.

    Libraries that handle forks (OpenBLAS) stop their threads before one, so a fork is tried.
    """
    if _threads() == 1:
        return False
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return True
    _fork_for(lambda: False)
    return _threads() > 1


def _fork_for(check: Callable[[], bool]) -> bool:
    """The result of a function in a forked process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(int(check()))
            finally:
                os._exit(0)
    return os.waitpid(pid, 0)[1] == 1 << 8


def _why_unfit() -> str | None:
    """Why this process must not be forked; None if it may."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        if file.read().strip():
            return "importing its modules started a process"
    return why_device_open() or _why_cuda_used()


def why_device_open(prefixes: tuple[str, ...] = _DEVICE_FILES) -> str | None:
    """Why the device files that this process has open forbid a fork; None if there are none."""
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if path.startswith(prefixes):
            return f"importing its modules opened the GPU ({path})"
    with open("/proc/self/maps") as file:
        if any(line.split(None, 5)[-1].startswith(prefixes) for line in file):
            return "importing its modules mapped the memory of a GPU"
    return None


def _why_cuda_used() -> str | None:
    """Torch counts GPUs in a way that makes CUDA unusable after a fork, and then knows that."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None:
        return None
    if hasattr(cuda, "is_initialized") and cuda.is_initialized():
        return "importing its modules initialized CUDA"
    if hasattr(cuda, "_is_in_bad_fork") and _fork_for(cuda._is_in_bad_fork):
        return "importing its modules counted the GPUs, after which a fork cannot use CUDA"
    return None


def _source_files() -> list[str]:
    """Files whose change makes this server stale: modules that are not installed, one by one, and
    the folders of installed ones, which change when a package is added, replaced or removed."""
    standard = os.path.dirname(os.__file__) + os.sep
    files = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name in _AT_START or not isinstance(path, str) or path == __file__:
            continue
        if not path.startswith(standard) and not any(part in path for part in _INSTALLED):
            files.append(path)
    return files + [path for path in sys.path if os.path.basename(path) in _INSTALLED]


def _marks(paths: Iterable[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            found[path] = None
    return found


def main() -> None:
    server = Server(int(sys.argv[1]))
    job = server.serve()
    if job is None:
        os._exit(0)
    forked_job.begin(job, server.first_path, server.output, _AT_START)
    status = forked_job.run(job, (__file__, forked_job.__file__))
    if status is not None:
        forked_exit.exit_quickly(status, server.open_files, _AT_START)
        sys.exit(status)


if __name__ == "__main__":
    main()
