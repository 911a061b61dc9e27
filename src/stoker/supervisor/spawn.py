"""Turn an order into a process with one posix_spawn: no fork, so the parent's size does not matter.

posix_spawn cannot change folder, mask or limits for the child, so this process takes them on for a
moment; it has no threads that could notice. It gets bytes: text would be encoded as the locale has
it, and commands come from files that know nothing of locales.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterable, Sequence

from stoker.core.commands import MAX_ARGUMENT_BYTES
from stoker.core.model import Context
from stoker.core.text import to_system
from stoker.supervisor import process_tags
from stoker.supervisor.orders import INHERIT, Order

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


def encode_environment(pairs: Iterable[tuple[str, str]]) -> Environment:
    return {to_system(key): to_system(value) for key, value in pairs}


class HostTrouble(Exception):
    """The machine has no room for another process just now; try again later."""


class StartFailed(Exception):
    """This job cannot be started: no such program, folder or right."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Launchpad:
    """Spawns one order after another."""

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._own_limits = process_tags.own_limits()

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
        try:
            self._enter(context.cwd)
            if order.folder is not None:
                _make_folder(order.folder)
            files = [(os.POSIX_SPAWN_DUP2, self._null, 0)]
            # Onto itself: the one way to hand on a descriptor that is closed on exec otherwise.
            files += [(os.POSIX_SPAWN_DUP2, number, number) for number in inherited]
            mask = os.umask(context.umask)
            opened = {} if log is None else {1: log}
            try:
                _open_output(order, opened)
                for number, descriptor in opened.items():
                    files.append((os.POSIX_SPAWN_DUP2, descriptor, number))
                process_tags.set_tag(tag)
                try:
                    return _execute(order, context, env, files)
                finally:
                    process_tags.restore(self._own_limits)
            finally:
                os.umask(mask)
                for descriptor in set(opened.values()).difference((log,)):
                    os.close(descriptor)
        except OSError as error:
            trouble = as_trouble(error)
            if isinstance(trouble, StartFailed):
                _log_failure(order, trouble, log)
            raise trouble from None
        except StartFailed as failure:
            _log_failure(order, failure, log)
            raise

    def _enter(self, cwd: str) -> None:
        # Not only when it differs: the folder may have been removed and made anew.
        try:
            os.chdir(to_system(cwd))
        except OSError as error:
            raise StartFailed(126, f"cannot enter the folder {cwd}: {error.strerror}") from None


def as_trouble(error: OSError) -> HostTrouble | StartFailed:
    if error.errno in _HOST_TROUBLE:
        return HostTrouble(os.strerror(error.errno or 0))
    name = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    return StartFailed(126, f"{name}{error.strerror}")


def _open_output(order: Order, opened: dict[int, int]) -> None:
    """Descriptors for stdout and stderr; a job inherits ours where none is opened."""
    if order.stdout is not None and 1 not in opened:
        opened[1] = _open_log(order.stdout, order.own_log, order.number)
    if order.stderr is None:
        opened |= {2: opened[1]} if opened else {}
    elif order.stderr != INHERIT:
        opened[2] = _open_log(order.stderr, False, order.number)


def _open_log(name: str, own: bool, number: int) -> int:
    path = to_system(name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    if own:
        try:
            return os.open(path, flags | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # the first of its thousand
            _make_folder(os.path.dirname(name))
            return os.open(path, flags | os.O_NOFOLLOW, 0o600)
    # A path the user chose: a first attempt starts it anew, a retry adds to it.
    flags |= os.O_TRUNC if number == 1 else 0
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:  # `-o logs/%j.txt` in a folder without `logs`
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o666)


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


def _execute(
    order: Order,
    context: Context,
    env: Environment,
    files: list[tuple[int, int, int]],
) -> int:
    argv = _shell_words(order, context) if order.shell else [to_system(w) for w in order.argv]
    path = _find(argv[0], env)
    try:
        return _posix_spawn(path, argv, env, files)
    except OSError as error:
        if error.errno == errno.ENOENT and not os.path.exists(path):
            raise StartFailed(127, f"{os.fsdecode(path)}: no such program") from None
        if error.errno != errno.ENOEXEC:
            error.filename = argv[0]
            raise
        # A script without a `#!` line: what every shell does with it.
        return _posix_spawn(b"/bin/sh", [b"/bin/sh", path, *argv[1:]], env, files)


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


def _shell_words(order: Order, context: Context) -> list[bytes]:
    text = to_system(order.argv[0])
    shell = to_system(context.shell)
    if len(text) <= MAX_ARGUMENT_BYTES:
        # A text that begins with a sign would be taken for an option; a blank changes nothing else.
        return [shell, b"-c", b" " + text if text[:1] in b"-+" else text]
    script = to_system(f"{order.stdout or context.cwd}.{order.attempt}.sh")
    with open(os.open(script, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text)
    return [shell, script]


def _find(program: bytes, env: Environment) -> bytes:
    """Where the job's own PATH has the program (ours may differ)."""
    if b"/" in program:
        return program
    found = None
    for folder in (env.get(b"PATH") or os.fsencode(os.defpath)).split(b":"):
        path = os.path.join(folder or b".", program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if os.path.isfile(path):
            found = path
    if found:
        raise StartFailed(126, f"{os.fsdecode(found)}: not executable")
    raise StartFailed(127, f"{os.fsdecode(program)}: command not found")
