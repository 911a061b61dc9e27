"""A fork server: imports modules once, then forks a process for each job.

    python [FLAGS] fork_server.py DESCRIPTOR PADDING

It is executed by the interpreter of the jobs, any Python 3.9 or later, in which Stoker may not be
installed. So this file imports only the standard library, and nothing else may import it.

DESCRIPTOR is a stream socket to the parent of the jobs (fork_servers.py), which sends JSON:

    ["prepare", {...}]  import modules; answered by `ready` or `unfit`
    ["fork", {...}]     start a job; its descriptors come with the message

A job is forked twice, so that it becomes a child of the subreaper that started this server. It
changes its folder, session, tag and descriptors, reports its PID through its own control socket and
waits there for `go`. If the socket is closed instead, nothing has been executed, and the process
ends with the signal ABANDONED, which no program uses.
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
import resource  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Any, NoReturn

ABANDONED = 61
_passes: dict[str, int] = {}  # of failpoints
_RLIMIT_LOCKS = 10
_HIGH_DESCRIPTOR = 200  # a job finds the same low numbers free as in a cold start
_MAX_OUTPUT = 1 << 16
_MAX_MODULES = 400
_DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")
_INSTALLED = ("site-packages", "dist-packages")


class Job:
    """A request to start a job, in the process that becomes it."""

    def __init__(self, fields: dict[str, Any], descriptors: list[int]) -> None:
        self.argv = [_system(word) for word in fields["argv"]]
        self.env = {_system(key): _system(value) for key, value in fields["env"]}
        self.cwd = _system(fields["cwd"])
        self.umask = fields["umask"]
        self.tag = fields["tag"]
        self.kind = fields["kind"]  # script, module or code
        self.program = os.fsdecode(_system(fields["program"]))
        self.arguments = [os.fsdecode(_system(word)) for word in fields["arguments"]]
        self.learns = fields["learns"]
        self.files = descriptors[:3]
        self.control = descriptors[3]
        self.leases = descriptors[4:]


def _system(text: str) -> bytes:
    """Bytes of the system, which JSON has as one character for each byte."""
    return text.encode("latin-1")


def _failpoint(name: str) -> None:
    """Kill this process for a test, as stoker.testing.failpoints does."""
    active, _, count = os.environ.get("STOKER_FAILPOINT", "").partition(":")
    if active != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] != int(count or 1):
        return
    once = os.environ.get("STOKER_FAILPOINT_ONCE")
    if once:
        try:
            os.unlink(once)
        except FileNotFoundError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


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
        self._captured = _capture_output()

    def serve(self) -> Job | None:
        """Handle requests. Returns the Job in the process of a job; a server returns None."""
        self._send("hello", {"protocol": 2, "release": None})
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
        _failpoint("server.before_imports")
        self.first_path = first_path(fields["kind"], os.fsdecode(_system(fields["program"])))
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
        gc.freeze()  # collections in jobs do not write to, and so copy, these objects
        reason = _why_unfit()
        if reason is not None:
            self._send("unfit", {"why": reason})
            return
        self._files = _marks(_source_files())
        _failpoint("server.before_ready")
        self._send("ready", {})

    def _is_stale(self) -> bool:
        """Whether an imported file of the user's project, or an installed package, has changed."""
        return _marks(self._files) != self._files

    # -- jobs ------------------------------------------------------------------------------------

    def _fork(self, fields: dict[str, Any], descriptors: list[int]) -> Job | None:
        """Start a job; returns it in its own process and None in the server."""
        _failpoint("server.before_fork")
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
            _failpoint("server.after_fork")
            return None
        while os.getppid() == own:  # until the subreaper is our parent
            time.sleep(0.0002)
        self._channel.close()
        return Job(fields, descriptors)


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


# -- a job ---------------------------------------------------------------------------------------


def first_path(kind: str, program: str) -> str | None:
    """sys.path[0] of a program; None if the interpreter's flags exclude it."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    if kind == "module":
        return os.getcwd()
    return os.path.dirname(os.path.realpath(program)) if kind == "script" else ""


def _begin(job: Job) -> tuple[socket.socket, str | None]:
    """Become the job, as a cold start would: session, tag, folder, files. Returns at `go`."""
    control = socket.socket(fileno=job.control)
    try:
        os.setsid()
        try:
            hard = resource.getrlimit(_RLIMIT_LOCKS)[1]
            resource.setrlimit(_RLIMIT_LOCKS, (job.tag, hard))
        except (ValueError, OSError):
            pass  # as in process_tags.set_tag
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(job.umask)
        os.chdir(job.cwd)
        for number, descriptor in enumerate(job.files):
            os.dup2(descriptor, number)
        for descriptor in job.files:
            os.close(descriptor)
        for descriptor in job.leases:
            os.set_inheritable(descriptor, True)
        cold = _why_cold(job)
        control = _moved_up(control)
        control.sendall(json.dumps({"pid": os.getpid(), "cold": cold}).encode())
        _failpoint("job.before_go")
        if control.recv(16) == b"go":
            return control, cold
    except OSError:
        pass  # a cold start reports it
    _abandon()


def _abandon() -> NoReturn:
    signal.signal(ABANDONED, signal.SIG_DFL)
    os.kill(os.getpid(), ABANDONED)
    os._exit(126)


def _moved_up(control: socket.socket) -> socket.socket:
    import fcntl

    try:
        number = fcntl.fcntl(control.fileno(), fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    except OSError:
        return control
    control.close()
    return socket.socket(fileno=number)


def _why_cold(job: Job) -> str | None:
    """Why this process must execute the interpreter after all; None if it can run the program."""
    if job.kind == "script":
        if not os.path.isfile(job.program) or job.program.endswith(".pyc"):
            return f"`{job.program}` is not a Python source file"
        with open(job.program, "rb") as file:
            if file.read(4) == b"PK\x03\x04":
                return f"`{job.program}` is a zip file"
    folder = first_path(job.kind, job.program)
    if folder is None:
        return None
    hidden = _hidden_module(folder or ".")
    return None if hidden is None else f"`{hidden[0]}` hides the module `{hidden[1]}`"


def _hidden_module(folder: str) -> tuple[str, str] | None:
    """(file, module) of a file in the program's folder that hides an imported module."""
    for name in os.listdir(folder):
        stem, dot, _ = name.partition(".")
        if stem in _AT_START or stem not in sys.modules or name == "__pycache__":
            continue
        path = os.path.join(folder, name)
        if dot and not name.endswith((".py", ".so")):
            continue
        if not dot and not os.path.isfile(os.path.join(path, "__init__.py")):
            continue
        loaded = getattr(sys.modules[stem], "__file__", None) or ""
        if not os.path.realpath(loaded).startswith(os.path.realpath(folder) + os.sep):
            return path, stem
    return None


def _retitle(argv: list[bytes]) -> None:
    """Show the job's arguments in `ps`: overwrite those of the server in memory."""
    try:
        with open("/proc/self/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        start, end = int(words[45]), int(words[46])
        title = b"\0".join(argv)[: end - start - 1]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(title.ljust(end - start, b"\0"))
    except (OSError, ValueError, IndexError):
        pass


def _set_environment(env: dict[bytes, bytes]) -> None:
    os.environ.clear()
    for key, value in env.items():
        try:
            os.environb[key] = value
        except (OSError, ValueError):
            pass  # a name that setenv refuses, such as an empty one


def _renew_process_state() -> None:
    """Give this process what every process has for itself: seeds, keys, caches."""
    numpy = sys.modules.get("numpy")
    if "numpy.random" in sys.modules and numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch.random")
    if torch is not None:
        torch.default_generator.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    importlib = sys.modules.get("importlib")
    if importlib is not None and hasattr(importlib, "invalidate_caches"):
        importlib.invalidate_caches()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.isatty():
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _report_modules(control: socket.socket, identity: tuple[int, int, int]) -> None:
    """At exit: send the installed modules that the program imported."""
    if os.getpid() != identity[0]:
        return
    try:
        status = os.fstat(control.fileno())
        if (status.st_dev, status.st_ino) != identity[1:]:
            return  # the program closed our descriptor, and the number has another meaning now
        names = _installed_modules()
        control.setblocking(False)
        control.sendall(json.dumps({"modules": names}).encode())
    except (OSError, ValueError):
        pass


def _installed_modules() -> list[str]:
    names = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name in _AT_START or not isinstance(path, str) or name.count(".") > 1:
            continue
        if any(part in path for part in _INSTALLED) and name.replace(".", "_").isidentifier():
            names.append(name)
    return names[:_MAX_MODULES]


def _new_main() -> dict[str, Any]:
    """A fresh `__main__`, as the interpreter makes it."""
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        main.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main
    return main.__dict__


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _run(job: Job) -> None:
    """Run the program in `__main__`; what it raises is shown without the frames of this file."""
    space = _new_main()
    try:
        if job.kind == "module":
            import runpy

            sys.argv = ["-m", *job.arguments]
            runpy._run_module_as_main(job.program)  # type: ignore[attr-defined]
            return
        if job.kind == "code":
            sys.argv = ["-c", *job.arguments]
            space["__loader__"] = sys.modules["_frozen_importlib"].BuiltinImporter
            exec(compile(job.program, "<string>", "exec", 0, True), space)
            return
        sys.argv = [job.program, *job.arguments]
        path = job.program
        if not os.path.isabs(path):
            path = os.path.join(os.getcwd(), path)
        loader = sys.modules["_frozen_importlib_external"]
        space.update(
            __file__=path, __cached__=None, __loader__=loader.SourceFileLoader("__main__", path)
        )
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", 0, True), space)
    except SystemExit:
        raise
    except BaseException:
        shown: Any = sys.excepthook

        def show(kind: Any, error: Any, trace: Any) -> None:
            trace = _without_our_frames(trace)
            if error is not None:
                error.__traceback__ = trace
            shown(kind, error, trace)

        sys.excepthook = show
        raise


def main() -> None:
    server = Server(int(sys.argv[1]))
    job = server.serve()
    if job is None:
        os._exit(0)
    control, cold = _begin(job)
    _set_environment(job.env)
    if cold is not None:
        os.execvpe(job.argv[0], job.argv, job.env)
    _retitle(job.argv)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [os.fsdecode(word) for word in job.argv]
    folder = first_path(job.kind, job.program)
    if folder is not None:
        if sys.path and sys.path[0] == server.first_path:
            sys.path[0] = folder
        else:
            sys.path.insert(0, folder)
    _renew_process_state()
    for number, text in enumerate(server.output, 1):
        if text:
            os.write(number, text)
    if job.learns:
        import atexit

        status = os.fstat(control.fileno())
        atexit.register(_report_modules, control, (os.getpid(), status.st_dev, status.st_ino))
    else:
        control.close()
    _run(job)


if __name__ == "__main__":
    main()
