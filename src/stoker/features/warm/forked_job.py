"""The process of a job that was forked from a fork server: it becomes the job and runs its program.

fork_server.py loads this file. It imports only the standard library.

The process changes its folder, session, tag and descriptors, reports its PID through its own
control socket and waits there for `go`. If the socket is closed instead, nothing has been executed,
and the process ends with the signal ABANDONED, which no program uses.
"""

from __future__ import annotations

import atexit
import builtins
import json
import os
import resource
import signal
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any, NoReturn

ABANDONED = 61
_passes: dict[str, int] = {}  # of failpoints
_HIGH_DESCRIPTOR = 200  # a job finds the same low numbers free as in a cold start
_MAX_MODULES = 400
_INSTALLED = ("site-packages", "dist-packages")


class Job:
    """A request to start a job, in the process that becomes it."""

    def __init__(self, fields: dict[str, Any], descriptors: list[int]) -> None:
        self.argv = [system_bytes(word) for word in fields["argv"]]
        self.env = {system_bytes(key): system_bytes(value) for key, value in fields["env"]}
        self.cwd = system_bytes(fields["cwd"])
        self.umask = fields["umask"]
        self.tag = fields["tag"]
        self.tag_limit = fields["tag_limit"]  # the resource limit that holds it
        self.cgroup = fields["cgroup"]
        self.kind = fields["kind"]  # script, module or code
        self.program = os.fsdecode(system_bytes(fields["program"]))
        self.arguments = [os.fsdecode(system_bytes(word)) for word in fields["arguments"]]
        self.learns = fields["learns"]
        self.files = descriptors[:3]
        self.control = descriptors[3]
        self.leases = descriptors[4:]


def system_bytes(text: str) -> bytes:
    """Bytes of the system, which JSON has as one character for each byte."""
    return text.encode("latin-1")


def failpoint(name: str) -> None:
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


def first_path(kind: str, program: str) -> str | None:
    """sys.path[0] of a program; None if the interpreter's flags exclude it."""
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    if kind == "module":
        return os.getcwd()
    return os.path.dirname(os.path.realpath(program)) if kind == "script" else ""


def begin(
    job: Job, server_path: str | None, output: tuple[bytes, ...], at_start: frozenset[str]
) -> None:
    """Become the job, as a cold start would. Returns when its program can run.

    `server_path`: sys.path[0] of the server. `output`: what its imports printed. `at_start`: the
    modules that every program finds.
    """
    control, cold = _await_go(job, at_start)
    _set_environment(job.env)
    if cold is not None:
        os.execvpe(job.argv[0], job.argv, job.env)
    _retitle(job.argv)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [os.fsdecode(word) for word in job.argv]
    folder = first_path(job.kind, job.program)
    if folder is not None:
        if sys.path and sys.path[0] == server_path:
            sys.path[0] = folder
        else:
            sys.path.insert(0, folder)
    _renew_process_state()
    for number, text in enumerate(output, 1):
        if text:
            os.write(number, text)
    if job.learns:
        status = os.fstat(control.fileno())
        identity = (os.getpid(), status.st_dev, status.st_ino)
        atexit.register(_report_modules, control, identity, at_start)
    else:
        control.close()


def _await_go(job: Job, at_start: frozenset[str]) -> tuple[socket.socket, str | None]:
    """Set session, tag, folder and files, and wait for `go`. Returns why it must start cold."""
    control = socket.socket(fileno=job.control)
    try:
        os.setsid()
        try:
            hard = resource.getrlimit(job.tag_limit)[1]
            resource.setrlimit(job.tag_limit, (job.tag, hard))
        except (ValueError, OSError):
            pass  # as in process_tags.set_tag
        _enter_cgroup(job.cgroup)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(job.umask)
        os.chdir(job.cwd)
        for number, descriptor in enumerate(job.files):
            os.dup2(descriptor, number)
        for descriptor in job.files:
            os.close(descriptor)
        for descriptor in job.leases:
            os.set_inheritable(descriptor, True)
        cold = _why_cold(job, at_start)
        control = _moved_up(control)
        control.sendall(json.dumps({"pid": os.getpid(), "cold": cold}).encode())
        failpoint("job.before_go")
        if control.recv(16) == b"go":
            return control, cold
    except OSError:
        pass  # a cold start reports it
    _abandon()


def _enter_cgroup(path: str | None) -> None:
    """Enter the cgroup of the job, if it has one (job_cgroups.py)."""
    if path is not None:
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(b"0")
        except OSError:
            pass  # other evidence remains


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


def _why_cold(job: Job, at_start: frozenset[str]) -> str | None:
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
    hidden = _hidden_module(folder or ".", at_start)
    return None if hidden is None else f"`{hidden[0]}` hides the module `{hidden[1]}`"


def _hidden_module(folder: str, at_start: frozenset[str]) -> tuple[str, str] | None:
    """(file, module) of a file in the program's folder that hides an imported module."""
    for name in os.listdir(folder):
        stem, dot, _ = name.partition(".")
        if stem in at_start or stem not in sys.modules or name == "__pycache__":
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


def _report_modules(
    control: socket.socket, identity: tuple[int, int, int], at_start: frozenset[str]
) -> None:
    """At exit: send the installed modules that the program imported."""
    if os.getpid() != identity[0]:
        return
    try:
        status = os.fstat(control.fileno())
        if (status.st_dev, status.st_ino) != identity[1:]:
            return  # the program closed our descriptor, and the number has another meaning now
        names = _installed_modules(at_start)
        control.setblocking(False)
        control.sendall(json.dumps({"modules": names}).encode())
    except (OSError, ValueError):
        pass


def _installed_modules(at_start: frozenset[str]) -> list[str]:
    names = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name in at_start or not isinstance(path, str) or name.count(".") > 1:
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


def _compiled(text: str) -> CodeType:
    """The code of `python -c`, whose lines are in tracebacks since 3.13."""
    if sys.version_info >= (3, 14):
        import textwrap

        text = textwrap.dedent(text)
    code: CodeType = compile(text, "<string>", "exec", 0, True)
    if sys.version_info >= (3, 13):
        import linecache

        key = code if hasattr(linecache, "_interactive_cache") else "<string>"  # 3.13.0
        linecache._register_code(key, text, "<string>")  # type: ignore[attr-defined]
    return code


def _flush_output() -> None:
    for stream in (sys.stderr, sys.stdout):
        try:
            stream.flush()
        except Exception:
            pass  # the interpreter tries again when it ends


def _without_frames_of(files: tuple[str, ...], trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in files:
        trace = trace.tb_next
    return trace


def run(job: Job, files: tuple[str, ...]) -> int | None:
    """Run the program in `__main__`; what it raises is shown without the frames of our files.

    Returns its exit status, if it ended with one.
    """
    space = _new_main()
    try:
        if job.kind == "module":
            import runpy

            sys.argv = ["-m", *job.arguments]
            runpy._run_module_as_main(job.program)  # type: ignore[attr-defined]
            return 0
        if job.kind == "code":
            sys.argv = ["-c", *job.arguments]
            space["__loader__"] = sys.modules["_frozen_importlib"].BuiltinImporter
            exec(_compiled(job.program), space)
            return 0
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
        try:
            exec(compile(source, path, "exec", 0, True), space)
        finally:
            _flush_output()  # before exit functions print
        return 0
    except SystemExit as error:
        status = 0 if error.code is None else error.code
        if type(status) is int and 0 <= status < 256:
            return status
        raise  # the interpreter shows it
    except BaseException:
        shown: Any = sys.excepthook

        def show(kind: Any, error: Any, trace: Any) -> None:
            trace = _without_frames_of(files, trace)
            if error is not None:
                error.__traceback__ = trace
            shown(kind, error, trace)

        sys.excepthook = show
        raise
