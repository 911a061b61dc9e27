"""Turn an order into a process with one posix_spawn: no fork, so the parent's size does not matter.

posix_spawn cannot change folder, mask or limits for the child, so this process takes them on for a
moment; it has no threads that could notice. It gets bytes: text would be encoded as the locale has
it, and commands come from files that know nothing of locales.

Paths on a network file system may hang. Such a job is forked, and enters its folder, opens its
output and executes its program in the child, so that only this one job waits for a dead server.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable, Sequence

from stoker.core.formats.byte_text import to_system
from stoker.core.formats.shell_words import MAX_ARGUMENT_BYTES
from stoker.core.model import Context
from stoker.supervisor import process_tags
from stoker.supervisor.messages import INHERIT, Order
from stoker.supervisor.mounts import Mounts
from stoker.supervisor.regular_files import open_for_output

# Python ignores some signals and so would the job; a job starts with every signal as usual.
_DEFAULT_SIGNALS = [
    number
    for number in signal.valid_signals()
    if number < 32 and number not in (signal.SIGKILL, signal.SIGSTOP)
]
_HOST_TROUBLE = (
    errno.EAGAIN,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
)

# Encoded once, because there are sixty variables for every job.
Environment = dict[bytes, bytes]
# (program, arguments, environment, descriptors as file actions) -> PID
Start = Callable[[bytes, list[bytes], Environment, list[tuple[int, int, int]]], int]
_MFD_NOEXEC_SEAL = 8


def encode_environment(pairs: Iterable[tuple[str, str]]) -> Environment:
    return {to_system(key): to_system(value) for key, value in pairs}


class HostTrouble(Exception):
    """The machine has no room for another process just now; try again later."""


class StartFailed(Exception):
    """This job cannot be started: no such program, folder or right."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Spawner:
    """Spawns one order after another."""

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._own_limits = process_tags.own_limits()
        self._mounts = Mounts()

    def spawn(
        self,
        order: Order,
        context: Context,
        env: Environment,
        tag: int,
        inherited: Sequence[int] = (),
        log: int | None = None,
    ) -> int:
        """Start it; returns the PID of its first process, which leads its own session.

        `log` is for its output if it is open already; it stays open.
        """
        opened: list[int] = []
        mask = os.umask(context.umask)
        try:
            start = self._tagged(tag)
            return self._start(order, context, env, inherited, log, opened, start)
        except OSError as error:
            trouble = as_trouble(error)
            if isinstance(trouble, StartFailed):
                _log_failure(order, trouble, log)
            raise trouble from None
        except StartFailed as failure:
            _log_failure(order, failure, log)
            raise
        finally:
            os.umask(mask)
            for descriptor in opened:
                os.close(descriptor)

    def _tagged(self, tag: int) -> Start:
        """Starts processes that carry this tag."""

        def start(
            path: bytes, argv: list[bytes], env: Environment, files: list[tuple[int, int, int]]
        ) -> int:
            process_tags.set_tag(tag)
            try:
                return _posix_spawn(path, argv, env, files)
            finally:
                process_tags.restore(self._own_limits)

        return start

    def may_hang(self, order: Order, context: Context, env: Environment) -> bool:
        """Whether `spawn` touches a file system that may keep this process waiting."""
        cwd = to_system(context.cwd)
        paths = [cwd]
        paths += [to_system(p) for p in (order.stdout, order.stderr, order.folder) if p]
        program = to_system(context.shell if order.shell else order.argv[0])
        if b"/" in program:
            return self._mounts.any_may_hang(paths, [os.path.join(cwd, program)])
        folders = [os.path.join(cwd, folder) for folder in _search_path(env)]
        programs = [os.path.join(folder, program) for folder in folders]
        return self._mounts.any_may_hang(paths + folders, programs)

    def fork(
        self,
        order: Order,
        context: Context,
        env: Environment,
        tag: int,
        inherited: Sequence[int] = (),
        log: int | None = None,
    ) -> tuple[int, int]:
        """Start it in a copy of this process that may hang; returns its PID and a pipe.

        The pipe ends when the program was executed, and has the reason when it was not
        (see `read_failure`).
        """
        try:
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise as_trouble(error) from None
        process_tags.set_tag(tag)
        try:
            pid = os.fork()
            if pid == 0:
                self._become(order, context, env, inherited, log, writing)
        except OSError as error:
            os.close(reading)
            raise as_trouble(error) from None
        finally:
            process_tags.restore(self._own_limits)
            os.close(writing)
        return pid, reading

    def _become(
        self,
        order: Order,
        context: Context,
        env: Environment,
        inherited: Sequence[int],
        log: int | None,
        report: int,
    ) -> None:
        """In the child: become the program, or report why not. Never returns."""
        try:
            # What hangs must not hold the locks and connections of the process it was copied from.
            _close_others({self._null, report, *inherited, -1 if log is None else log})
            os.setsid()
            for number in _DEFAULT_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.umask(context.umask)
            self._start(order, context, env, inherited, log, [], _execute_here)
        except OSError as error:
            _report(report, as_trouble(error), order, log)
        except (HostTrouble, StartFailed) as error:
            _report(report, error, order, log)
        finally:
            os._exit(126)

    def _start(
        self,
        order: Order,
        context: Context,
        env: Environment,
        inherited: Sequence[int],
        log: int | None,
        opened: list[int],
        start: Start,
    ) -> int:
        """Everything that touches the paths of a job, in the process that executes `start`."""
        self._enter(context.cwd)
        if order.folder is not None:
            _make_folder(order.folder)
        files = [(os.POSIX_SPAWN_DUP2, self._null, 0)]
        # Onto itself: the one way to hand on a descriptor that is closed on exec otherwise.
        files += [(os.POSIX_SPAWN_DUP2, number, number) for number in inherited]
        for number, descriptor in _open_output(order, log, opened).items():
            files.append((os.POSIX_SPAWN_DUP2, descriptor, number))
        argv = [to_system(word) for word in order.argv]
        if order.shell:
            argv = _shell_words(argv[0], to_system(context.shell), opened, files)
        return _run(argv, env, files, start)

    def _enter(self, cwd: str) -> None:
        # Not only when it differs: the folder may have been removed and made anew.
        try:
            os.chdir(to_system(cwd))
        except OSError as error:
            raise StartFailed(126, f"cannot enter the folder {cwd}: {error.strerror}") from None


def _close_others(kept: set[int]) -> None:
    first = 3
    for descriptor in sorted(kept):
        if descriptor > first:  # CPython closes everything when asked to close nothing
            os.closerange(first, descriptor)
        first = max(first, descriptor + 1)
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _report(pipe: int, error: HostTrouble | StartFailed, order: Order, log: int | None) -> None:
    code = 0
    if isinstance(error, StartFailed):
        code = error.exit_code
        _log_failure(order, error, log)
    os.write(pipe, f"{code} {error}".encode("utf-8", "surrogateescape")[:4000])


def read_failure(pipe: int) -> HostTrouble | StartFailed | None:
    """Why a forked start failed; None when the program was executed.

    BlockingIOError while neither is known.
    """
    data = os.read(pipe, 4096)
    if not data:
        return None
    code, _, text = data.decode("utf-8", "surrogateescape").partition(" ")
    return StartFailed(int(code), text) if int(code) else HostTrouble(text)


def as_trouble(error: OSError) -> HostTrouble | StartFailed:
    if error.errno in _HOST_TROUBLE:
        return HostTrouble(os.strerror(error.errno or 0))
    name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return StartFailed(126, f"{name}{error.strerror}")


def _open_output(order: Order, log: int | None, opened: list[int]) -> dict[int, int]:
    """Descriptors for stdout and stderr; a job inherits ours where none is opened.

    Those that were opened here are added to `opened`, also when a later one fails.
    """
    output = {} if log is None else {1: log}
    if order.stdout is not None and log is None:
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
        # A path the user chose: a first attempt starts it anew, a retry adds to it.
        try:
            return open_for_output(path, truncate=number == 1)
        except FileNotFoundError:  # `-o logs/%j.txt` in a folder without `logs`
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return open_for_output(path, truncate=number == 1)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:  # the first of its thousand
        _make_folder(os.path.dirname(name))
        return os.open(path, flags, 0o600)


def _log_failure(order: Order, failure: StartFailed, log: int | None) -> None:
    """Say in the job's log why there is nothing else in it. Files that users chose stay theirs."""
    if not order.own_log or order.stdout is None:
        return
    line = to_system(f"stoker: {failure}\n")
    try:
        if log is not None:
            os.write(log, line)
            return
        descriptor = _open_log(order.stdout, True, order.number)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError:
        pass  # the record of the attempt says it too


def _make_folder(path: str) -> None:
    """Private whatever the job's mask is; makedirs would apply that to the folders above."""
    mask = os.umask(0o077)
    try:
        os.makedirs(to_system(path), exist_ok=True)
    finally:
        os.umask(mask)


def _run(
    argv: list[bytes], env: Environment, files: list[tuple[int, int, int]], start: Start
) -> int:
    path = _find(argv[0], env)
    try:
        return start(path, argv, env, files)
    except OSError as error:
        if error.errno == errno.ENOENT and not os.path.exists(path):
            raise StartFailed(127, f"{os.fsdecode(path)}: no such program") from None
        if error.errno != errno.ENOEXEC:
            error.filename = argv[0]
            raise
        # A script without a `#!` line: what every shell does with it.
        return start(b"/bin/sh", [b"/bin/sh", path, *argv[1:]], env, files)


def _execute_here(
    path: bytes, argv: list[bytes], env: Environment, files: list[tuple[int, int, int]]
) -> int:
    """Become the program in this process, as posix_spawn would start it."""
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
        setsigdef=_DEFAULT_SIGNALS,
    )


def _shell_words(
    text: bytes, shell: bytes, opened: list[int], files: list[tuple[int, int, int]]
) -> list[bytes]:
    if len(text) <= MAX_ARGUMENT_BYTES:
        # A text that begins with a sign would be taken for an option; a blank changes nothing else.
        return [shell, b"-c", b" " + text if text[:1] in b"-+" else text]
    script = _memory_file(text)
    opened.append(script)
    files.append((os.POSIX_SPAWN_DUP2, script, script))
    return [shell, b"/proc/self/fd/%d" % script]


def _memory_file(text: bytes) -> int:
    """A file without a name: other users cannot plant or read it, and it is gone with the job."""
    try:
        script = os.memfd_create("stoker-script", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:  # Linux before 6.3 does not know the second flag
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
    """Where the job's own PATH has the program (ours may differ)."""
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
