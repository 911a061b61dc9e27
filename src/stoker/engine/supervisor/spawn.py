"""Starts the process of an order with one posix_spawn, whose cost does not grow with the parent.

posix_spawn cannot set the working directory, umask or limits of the child, so this process, which
has no other threads, changes its own for a moment. Commands are passed as bytes, because Python
would encode text with the encoding of the locale.

Paths on a network file system may hang. Such a job is forked, and changes its directory, opens its
output and executes its program in the child, so that only this job waits for a dead server.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence

from stoker.engine.model import Context, Outcome
from stoker.engine.supervisor import process_tags
from stoker.engine.supervisor.cpu_binding import CpuBinding
from stoker.engine.supervisor.job_cgroups import JobCgroups
from stoker.engine.supervisor.messages import INHERIT, Order
from stoker.engine.supervisor.mounts import Mounts
from stoker.engine.supervisor.regular_files import open_for_output
from stoker.engine.supervisor.start_hooks import find_hook
from stoker.text.byte_text import to_system
from stoker.text.commands.shell_words import MAX_ARGUMENT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Python ignores some signals, and a job would inherit that; reset all to the default action.
DEFAULT_SIGNALS = [
    number
    for number in signal.valid_signals()
    if number < 32 and number not in (signal.SIGKILL, signal.SIGSTOP)
]
_HOST_ERRORS = (
    errno.EAGAIN,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
)

# Encoded once per context, because every job has about sixty variables.
Environment = dict[bytes, bytes]
MAX_CONTEXTS = 100  # that a parent of jobs keeps
# (program, arguments, environment, descriptors as file actions) -> PID
SpawnFunction = Callable[[bytes, list[bytes], Environment, list[tuple[int, int, int]]], int]
_MFD_NOEXEC_SEAL = 8
_NOTE = "note "


def encode_environment(pairs: Iterable[tuple[str, str]]) -> Environment:
    return {to_system(key): to_system(value) for key, value in pairs}


class HostError(Exception):
    """The host cannot start a process now (memory, processes, disk); try again later."""


def set_deadline(env: Environment, time_limit: float | None) -> None:
    """Tell a job that starts now when its time limit ends."""
    if time_limit is not None:
        env[b"STOKER_DEADLINE"] = b"%d" % (time.time() + time_limit)


class StartFailed(Exception):
    """This job cannot be started: no such program or folder, or no permission."""

    def __init__(self, exit_code: int, text: str, cause: str = "start_failed") -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.cause = cause

    def outcome(self, attempt: int) -> Outcome:
        """The end of the attempt that could not be started."""
        return Outcome(
            attempt=attempt,
            status=self.exit_code << 8,
            ended_at=time.time(),
            reason=self.cause,
            detail=str(self),
        )


class Spawner:
    """Starts the first processes of attempts."""

    def __init__(self, cgroups: JobCgroups) -> None:
        self._cgroups = cgroups
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._own_limits = process_tags.own_limits()
        self._mounts = Mounts()
        self._binding = CpuBinding()

    def spawn(
        self,
        order: Order,
        context: Context,
        env: Environment,
        tag: int,
        inherited: Sequence[int] = (),
    ) -> int:
        """Start an attempt; returns the PID of its first process, which is a session leader.

        Raises HostError or StartFailed.
        """

        def start(
            path: bytes, argv: list[bytes], env: Environment, files: list[tuple[int, int, int]]
        ) -> int:
            self._mark(order, tag)
            try:
                return _posix_spawn(path, argv, env, files)
            finally:
                self._unmark()

        opened: list[int] = []
        mask = os.umask(context.umask)
        try:
            return self._start(order, context, env, tag, inherited, opened, start)
        except OSError as error:
            start_error = as_start_error(error)
            if isinstance(start_error, StartFailed):
                _log_failure(order, start_error)
            raise start_error from None
        except StartFailed as failure:
            _log_failure(order, failure)
            raise
        finally:
            os.umask(mask)
            close_all(opened)

    def _mark(self, order: Order, tag: int) -> None:
        """Let children inherit a tag, a cgroup and CPUs until `_unmark`."""
        process_tags.set_tag(tag)
        self._cgroups.enter(order.attempt)
        self._binding.bind(order.cpus)

    def _unmark(self) -> None:
        self._binding.restore()
        self._cgroups.leave()
        process_tags.restore(self._own_limits)

    def may_hang(self, order: Order, context: Context, env: Environment) -> bool:
        """Whether `spawn` would use a file system that may hang."""
        cwd = to_system(context.cwd)
        paths = [cwd]
        paths += [to_system(p) for p in (order.stdout, order.stderr, order.folder) if p]
        if order.settings.activation:
            found = _environment_hook("activation_paths")(order.settings.activation)
            paths += [to_system(path) for path in found]
        program = to_system(context.shell if order.shell else order.argv[0])
        if b"/" in program:
            return self._mounts.any_may_hang(paths, [os.path.join(cwd, program)])
        folders = [os.path.join(cwd, folder) for folder in _search_path(env)]
        programs = [os.path.join(folder, program) for folder in folders]
        return self._mounts.any_may_hang(paths + folders, programs)

    def open_files(self, order: Order, context: Context) -> list[int]:
        """stdin, stdout and stderr of an attempt that another process starts, all to be closed.

        Raises HostError or StartFailed.
        """
        opened: list[int] = []
        mask = os.umask(context.umask)
        try:
            if order.folder is not None:
                _make_folder(order.folder)
            output = {1: 1, 2: 2} | _open_output(order, opened)
            return [os.dup(self._null), os.dup(output[1]), os.dup(output[2])]
        except OSError as error:
            raise as_start_error(error) from None
        finally:
            os.umask(mask)
            close_all(opened)

    def write_note(self, order: Order, context: Context) -> None:
        """Write the first line of the log of an attempt that another process starts."""
        try:
            files = self.open_files(order, context)
        except (HostError, StartFailed):
            return  # the database has it too
        _write_note(order, {1: files[1]})
        close_all(files)

    def fork_comparison(self, order: Order) -> tuple[int, int]:
        """Compare the code of an attempt in a process that may hang; returns its PID and a pipe.

        The pipe contains the difference (see `StartReport`). Raises HostError or StartFailed.
        """
        return _fork(lambda report: self._compare(order, report))

    def _compare(self, order: Order, report: int) -> None:
        """In the child. Never returns."""
        try:
            _leave_parent({self._null, report})
            _with_code_note(order, report)
        finally:
            os._exit(0)

    def output_may_hang(self, order: Order) -> bool:
        """Whether `open_files` would use a file system that may hang."""
        paths = [to_system(p) for p in (order.stdout, order.stderr, order.folder) if p]
        return self._mounts.any_may_hang(paths, [])

    def fork(
        self,
        order: Order,
        context: Context,
        env: Environment,
        tag: int,
        inherited: Sequence[int] = (),
    ) -> tuple[int, int]:
        """Start an attempt in a fork that may hang; returns its PID and a pipe.

        The pipe is closed when the program is executed, and contains the error if that failed (see
        `StartReport`).
        """
        self._mark(order, tag)
        try:
            return _fork(
                lambda report: self._run_child(order, context, env, tag, inherited, report)
            )
        finally:
            self._unmark()

    def _run_child(
        self,
        order: Order,
        context: Context,
        env: Environment,
        tag: int,
        inherited: Sequence[int],
        report: int,
    ) -> None:
        """In the child: execute the program, or report the error. Never returns."""
        try:
            _leave_parent({self._null, report, *inherited})
            os.umask(context.umask)
            if order.code_check:
                order = _with_code_note(order, report)
            self._start(order, context, env, tag, inherited, [], _execute_here)
        except OSError as error:
            _report(report, as_start_error(error), order)
        except (HostError, StartFailed) as error:
            _report(report, error, order)
        finally:
            os._exit(126)

    def _start(
        self,
        order: Order,
        context: Context,
        env: Environment,
        tag: int,
        inherited: Sequence[int],
        opened: list[int],
        start: SpawnFunction,
    ) -> int:
        """Open all paths of a job and call `start`."""
        self._enter(context.cwd)
        if order.folder is not None:
            _make_folder(order.folder)
        files = [(os.POSIX_SPAWN_DUP2, self._null, 0)]
        # dup2 onto itself clears close-on-exec, so that the child inherits the descriptor.
        files += [(os.POSIX_SPAWN_DUP2, number, number) for number in inherited]
        output = _open_output(order, opened)
        if order.code_note:
            _write_note(order, output)
        for number, descriptor in output.items():
            files.append((os.POSIX_SPAWN_DUP2, descriptor, number))
        argv = [to_system(word) for word in order.argv]
        if order.shell:
            argv = _shell_words(argv[0], to_system(context.shell), opened, files)
        if order.settings.activation:
            argv, env = _environment_hook("activate")(order, context, env, argv, tag)
        return _run(argv, env, files, start)

    def _enter(self, cwd: str) -> None:
        # Even if the path is the same: the folder may have been deleted and created again.
        try:
            os.chdir(to_system(cwd))
        except OSError as error:
            raise StartFailed(126, f"cannot enter the folder {cwd}: {error.strerror}") from None


def _environment_hook(name: str) -> Callable[..., Any]:
    hook = find_hook(name)
    if hook is None:
        raise StartFailed(126, "this Stoker is installed without environments")
    return hook


def _fork(run: Callable[[int], None]) -> tuple[int, int]:
    """Call `run` in a child with a pipe to report to; returns the child's PID and our end.

    `run` must not return. Raises HostError or StartFailed.
    """
    try:
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise as_start_error(error) from None
    try:
        pid = os.fork()
        if pid == 0:
            run(writing)
    except OSError as error:
        os.close(reading)
        raise as_start_error(error) from None
    finally:
        os.close(writing)
    return pid, reading


def _leave_parent(kept: set[int]) -> None:
    """In a forked child: a session of its own, and the signals of a new process.

    A child that hangs must not hold the locks and connections of the parent: of its descriptors,
    only `kept` stay open.
    """
    close_others(kept)
    os.setsid()
    for number in DEFAULT_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def close_others(kept: set[int]) -> None:
    first = 3
    for descriptor in sorted(kept):
        if descriptor > first:  # an empty range would make CPython close all descriptors
            os.closerange(first, descriptor)
        first = max(first, descriptor + 1)
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _with_code_note(order: Order, report: int) -> Order:
    """In the child: compare the code of a job, and report how it has changed."""
    difference = find_hook("code_difference")
    note = "" if difference is None else difference(order.code_check)
    if note:
        os.write(report, f"{_NOTE}{note[:1000]}\n".encode("utf-8", "surrogateescape"))
    return order._replace(code_note=note)


def _write_note(order: Order, output: dict[int, int]) -> None:
    """Write the first line of a log."""
    if 1 in output:
        try:
            os.write(output[1], to_system(f"stoker: {order.code_note}\n"))
        except OSError:
            pass  # the database has it too


def _report(pipe: int, error: HostError | StartFailed, order: Order) -> None:
    code, cause = 0, "-"
    if isinstance(error, StartFailed):
        code, cause = error.exit_code, error.cause
        _log_failure(order, error)
    os.write(pipe, f"{code} {cause} {error}".encode("utf-8", "surrogateescape")[:4000])


class StartReport:
    """What the child of a forked start reports through its pipe until it executes its program."""

    __slots__ = ("_data", "_pipe", "code_note", "failure")

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._data = b""
        self.code_note = ""  # how the code of the job has changed since its submit
        self.failure: HostError | StartFailed | None = None  # None: the program was executed

    def close(self) -> None:
        """Take no report."""
        os.close(self._pipe)

    def read(self) -> None:
        """Read the whole report. Raises BlockingIOError while it is not complete."""
        while data := os.read(self._pipe, 4096):
            self._data += data
        os.close(self._pipe)
        text = self._data.decode("utf-8", "surrogateescape")
        if text.startswith(_NOTE):
            note, _, text = text.partition("\n")
            self.code_note = note.removeprefix(_NOTE)
        if text:
            code, cause, why = text.split(" ", 2)
            self.failure = StartFailed(int(code), why, cause) if int(code) else HostError(why)


def as_start_error(error: OSError) -> HostError | StartFailed:
    if error.errno in _HOST_ERRORS:
        return HostError(os.strerror(error.errno or 0))
    name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return StartFailed(126, f"{name}{error.strerror}")


def _open_output(order: Order, opened: list[int]) -> dict[int, int]:
    """Descriptors for stdout and stderr; a job inherits ours if there is none.

    Descriptors opened here are added to `opened`, even if a later one fails.
    """
    output = {}
    if order.stdout is not None:
        output[1] = _open_log(order.stdout, order.own_log, order.number)
        opened.append(output[1])
    if order.stderr is None:
        output |= {2: output[1]} if output else {}
    elif order.stderr != INHERIT:
        output[2] = _open_log(order.stderr, False, order.number)
        opened.append(output[2])
    return output


def _open_log(name: str, own: bool, number: int) -> int:
    path = to_system(name)
    if not own:
        # A path that the user chose: the first attempt truncates it, a retry appends.
        try:
            return open_for_output(path, truncate=number == 1)
        except (FileNotFoundError, NotADirectoryError):  # `-o logs/%j.txt` without `logs`
            _make_output_folder(os.path.dirname(path))
            return open_for_output(path, truncate=number == 1)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:  # the first job of its thousand
        _make_folder(os.path.dirname(name))
        return os.open(path, flags, 0o600)


def _make_output_folder(path: bytes) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        if error.errno in _HOST_ERRORS:
            raise
        text = f"cannot create the folder {os.fsdecode(path)} of its output: {error.strerror}"
        raise StartFailed(126, text) from None


def _log_failure(order: Order, failure: StartFailed) -> None:
    """Write the error into the job's log, unless the user chose the file."""
    if not order.own_log or order.stdout is None:
        return
    line = to_system(f"stoker: {failure}\n")
    try:
        descriptor = _open_log(order.stdout, True, order.number)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError:
        pass  # the database has the error too


def _make_folder(path: str) -> None:
    """Create a private folder, and private parent folders, independent of the job's umask."""
    mask = os.umask(0o077)
    try:
        os.makedirs(to_system(path), exist_ok=True)
    finally:
        os.umask(mask)


def _run(
    argv: list[bytes], env: Environment, files: list[tuple[int, int, int]], start: SpawnFunction
) -> int:
    path = _find(argv[0], env)
    try:
        return start(path, argv, env, files)
    except OSError as error:
        if error.errno == errno.ENOENT and not os.path.exists(path):
            raise StartFailed(127, f"{os.fsdecode(path)}: command not found") from None
        if error.errno != errno.ENOEXEC:
            error.filename = argv[0]
            raise
        # A script without a `#!` line: run it with sh, as shells do.
        return start(b"/bin/sh", [b"/bin/sh", path, *argv[1:]], env, files)


def _execute_here(
    path: bytes, argv: list[bytes], env: Environment, files: list[tuple[int, int, int]]
) -> int:
    """Execute the program in this process, with the effect of posix_spawn."""
    for _, descriptor, number in files:
        if descriptor == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(descriptor, number)
    os.execve(path, argv, env)


def _posix_spawn(
    path: bytes, argv: list[bytes], env: Environment, files: list[tuple[int, int, int]]
) -> int:
    return os.posix_spawn(
        path,
        argv,
        env,
        file_actions=files,
        setsid=True,
        setsigmask=(),
        setsigdef=DEFAULT_SIGNALS,
    )


def _shell_words(
    text: bytes, shell: bytes, opened: list[int], files: list[tuple[int, int, int]]
) -> list[bytes]:
    if len(text) <= MAX_ARGUMENT_BYTES:
        # A leading space keeps the shell from parsing a leading - or + as an option.
        return [shell, b"-c", b" " + text if text[:1] in b"-+" else text]
    script = _memory_file(text)
    opened.append(script)
    files.append((os.POSIX_SPAWN_DUP2, script, script))
    return [shell, b"/proc/self/fd/%d" % script]


def _memory_file(text: bytes) -> int:
    """An anonymous file: other users cannot replace or read it, and it vanishes with the job."""
    try:
        script = os.memfd_create("stoker-script", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:  # Linux before 6.3 does not support MFD_NOEXEC_SEAL
        script = os.memfd_create("stoker-script", os.MFD_CLOEXEC)
    try:
        with open(script, "wb", closefd=False) as file:
            file.write(text)
    except BaseException:
        os.close(script)
        raise
    return script


def _search_path(env: Environment) -> list[bytes]:
    return (env.get(b"PATH") or os.fsencode(os.defpath)).split(b":")


def _find(program: bytes, env: Environment) -> bytes:
    """Search the program in the PATH of the job. Raises StartFailed."""
    if b"/" in program:
        return program
    found = None
    for folder in _search_path(env):
        path = os.path.join(folder or b".", program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if os.path.isfile(path):
            found = path
    if found:
        raise StartFailed(126, f"{os.fsdecode(found)}: not executable")
    raise StartFailed(127, f"{os.fsdecode(program)}: command not found")
