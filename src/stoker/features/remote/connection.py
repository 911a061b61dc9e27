"""A connection to a box: one ssh process in the background (the master), shared by all commands.

The first command opens it, where ssh may ask for a password on the terminal. ssh closes it ten
minutes after the last command.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shlex
import signal
import socket
import stat
import subprocess
from collections.abc import Sequence
from typing import IO

from stoker.engine.supervisor.parent_death import send_at_parent_death
from stoker.errors import NoPermission, Unavailable, UsageError
from stoker.features.remote.boxes import Box
from stoker.features.remote.remote_command import (
    EXIT_255,
    NO_FOLDER,
    NO_STOKER,
    RemoteCall,
    command_text,
    marker_query,
    shell_text,
)
from stoker.record import Record

LOST = 255  # the exit code of ssh when it cannot connect or loses the connection
_PERSIST_SECONDS = 600
_QUERY_SECONDS = 20.0
_BATCH_SECONDS = 4.0
_MASTER = (
    "-M", "-N", "-f", "-T",
    "-o", f"ControlPersist={_PERSIST_SECONDS}",
    # A connection that does not answer for a minute is lost: 15 s, then three questions.
    "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
    "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "RequestTTY=no",
)  # fmt: skip
# Only through the master: without it, ssh must not connect again by itself.
_SESSION = (
    "-o",
    "ControlMaster=no",
    "-o",
    "ProxyCommand=false",
    "-o",
    "LogLevel=ERROR",
    "-o",
    "RemoteCommand=none",
)


class Lost(Exception):
    """The connection was lost while a command ran: it is unknown whether the command finished."""


class Killed(Lost):
    """The connection is open, but the command ended without an exit code: by a signal."""


class Captured(Record):
    """The result of a command whose output was read."""

    code: int
    out: bytes
    err: bytes


def ssh_words() -> list[str]:
    """The ssh program: `ssh`, or the words in STOKER_SSH. Raises UsageError."""
    try:
        words = shlex.split(os.environ.get("STOKER_SSH") or "ssh")
    except ValueError as error:
        raise UsageError(f"STOKER_SSH is not a command: {error}") from None
    return words or ["ssh"]


class Connection:
    """Runs commands on a box. `is_batch`: ask no questions and connect within a few seconds."""

    def __init__(self, box: Box, *, is_batch: bool = False) -> None:
        self.box = box
        options = [word for option in box.ssh_options for word in ("-o", option)]
        self._ssh = [*ssh_words(), *options]
        self._is_batch = is_batch
        self._path = control_path(self._ssh, box.host)

    # -- the master ----------------------------------------------------------------------------

    def is_open(self) -> bool:
        """Whether the master runs and accepts commands."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(_QUERY_SECONDS)
            try:
                sock.connect(self._path)
            except OSError:
                return False
        return True

    def open(self, *, is_quiet: bool = False, timeout: float | None = None) -> None:
        """Connect, unless the connection is open. Raises Unavailable.

        `is_quiet`: without the messages of ssh, for repeated calls. `timeout`: how long to wait for
        an answer, at least one second; without it, ssh waits for ever for a silent server.
        """
        if self.is_open():
            return
        # Two masters at a time: the second would never end.
        lock = os.open(f"{self._path}.l", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.is_open():
                self._start_master(is_quiet, timeout)
        finally:
            os.close(lock)

    def _start_master(self, is_quiet: bool, timeout: float | None) -> None:
        try:
            os.unlink(self._path)  # of a master that was killed
        except FileNotFoundError:
            pass
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=2"] if self._is_batch else []
        if timeout is not None:
            options += ["-o", f"ConnectTimeout={max(1, round(timeout))}"]
        words = [*self._ssh, *_MASTER, *options, "-S", self._path, "--", self.box.host]
        try:
            code = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if is_quiet else None,
                timeout=_BATCH_SECONDS if self._is_batch else None,
            ).returncode
        except subprocess.TimeoutExpired:
            code = LOST
        except OSError as error:
            raise Unavailable(
                f"cannot run `{words[0]}`: {error.strerror}", "install the OpenSSH client"
            ) from None
        if code != 0:
            raise Unavailable(
                f"cannot connect to {self.box.name} over ssh",
                f"check the connection with: ssh {self.box.host}",
            )

    def control(self, action: str, *words: str) -> bool:
        """Ask the master to do something (`ssh -O`); returns whether it did."""
        command = [*self._ssh, "-S", self._path, "-O", action, *words, "--", self.box.host]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        return done.returncode == 0

    def session_words(self, *options: str) -> list[str]:
        """The ssh command of one session, without the host; for rsync too."""
        return [*self._ssh, *_SESSION, "-S", self._path, *options]

    # -- commands ------------------------------------------------------------------------------

    def start(
        self,
        words: Sequence[str],
        *,
        folder: str | None = None,
        hangs_up: bool = False,
        tty: bool = False,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> RemoteProcess:
        """Start `stoker WORDS` on the box. Raises Unavailable if it cannot connect."""
        self.open()
        call = RemoteCall(tuple(words), secrets.token_hex(8), folder, hangs_up)
        env = {"NO_COLOR": "1"} if "NO_COLOR" in os.environ else {}
        command = self.session_words("-t" if tty else "-T")
        command += ["--", self.box.host, command_text(self.box, call, env)]
        process = subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=_end_with_parent
        )
        return RemoteProcess(self, call, process)

    def capture(
        self,
        words: Sequence[str],
        *,
        folder: str | None = None,
        input: bytes = b"",
        timeout: float | None = None,
    ) -> Captured:
        """Run `stoker WORDS` and read its output. Raises Unavailable, Lost or TimeoutExpired."""
        pipe = subprocess.PIPE
        process = self.start(words, folder=folder, stdin=pipe, stdout=pipe, stderr=pipe)
        return process.capture(input, timeout)

    def query(self, script: str) -> Captured:
        """Run a script for /bin/sh in the open connection; code 255 if it fails."""
        command = [*self.session_words("-T"), "--", self.box.host, script]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_QUERY_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Captured(LOST, b"", b"")
        return Captured(done.returncode, done.stdout, done.stderr)

    def has_program(self, name: str) -> bool:
        """Whether the box has this program in the PATH of ssh commands."""
        return self.query(shell_text(f"command -v {shlex.quote(name)} >/dev/null")).code == 0


class RemoteProcess:
    """A running `stoker` on a box."""

    def __init__(
        self, connection: Connection, call: RemoteCall, process: subprocess.Popen[bytes]
    ) -> None:
        self.process = process
        self._connection = connection
        self._call = call

    def wait(self) -> int:
        """The exit code of the command. Raises Lost, Killed, or Unavailable if it cannot start."""
        return self._exit_code(self.process.wait())

    def capture(self, input: bytes | None, timeout: float | None) -> Captured:
        """Send the input, read the output. Raises Lost, Unavailable, TimeoutExpired."""
        try:
            out, err = self.process.communicate(input, timeout)
        except BaseException:
            self.end()
            raise
        return Captured(self._exit_code(self.process.returncode), out, err)

    def end(self) -> None:
        """End the ssh session; a command that hangs up then ends too."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass  # unsent input of a process that has ended

    def _exit_code(self, code: int) -> int:
        if code < 0:
            return 128 - code
        if code != LOST:
            return code
        box, connection = self._connection.box, self._connection
        if not connection.is_open():
            raise Lost
        done = connection.query(marker_query(self._call.nonce))
        if done.code == LOST:
            raise Lost
        word = done.out.decode("ascii", "replace").strip()
        if word == EXIT_255:
            return code
        if word == NO_STOKER:
            raise Unavailable(*_without_stoker(box))
        if word == NO_FOLDER:
            folder = self._call.folder or box.dir
            raise Unavailable(
                f"there is no folder `{folder}` on {box.name}",
                f"create it there, or name another: stoker context add {box.name} --host "
                f"{box.host} --dir DIR",
            )
        raise Killed


def _end_with_parent() -> None:
    """A session does not outlive a command that is killed, e.g. by timeout(1)."""
    send_at_parent_death(signal.SIGTERM)


def _without_stoker(box: Box) -> tuple[str, str]:
    if box.stoker is not None:
        return (
            f"there is no program `{box.stoker}` on {box.name}",
            f"correct it: stoker context add {box.name} --host {box.host} --stoker PATH",
        )
    return (
        f"Stoker is not installed on {box.name}: no `stoker` in the PATH or in ~/.local/bin",
        f"install it there: ssh {box.host} pip install --user stoker; or name the program: "
        f"stoker context add NAME --host {box.host} --stoker PATH",
    )


# The limit is 104 to 108 bytes, and ssh adds 17 while it creates a socket.
_MAX_PATH = 104 - 1 - 17
_NAME_LENGTH = 20


def control_path(*identity: object) -> str:
    """The path of the socket for a connection with this identity. Raises NoPermission."""
    digest = hashlib.sha256(repr(identity).encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(_private_folder(), digest[: _NAME_LENGTH - 4])


def _private_folder() -> str:
    """A folder with a short path that no other user can write to; created if missing."""
    problem = ""
    for base, name in _candidates():
        path = os.path.join(base, name)
        if len(os.fsencode(path)) + 1 + _NAME_LENGTH > _MAX_PATH:
            problem = problem or f"the path `{path}` is too long"
            continue
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            problem = f"cannot create `{path}`: {error.strerror}"
            continue
        info = os.lstat(path)
        if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o077:
            return path
        problem = f"`{path}` is not a private folder of yours"
    raise NoPermission(
        f"there is no place for the socket of ssh: {problem}",
        "set XDG_RUNTIME_DIR to a private folder with a short path",
    )


def _candidates() -> list[tuple[str, str]]:
    found = [("/tmp", f"stoker-ssh-{os.geteuid()}"), (os.path.expanduser("~"), ".stoker-ssh")]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return [(runtime, "stoker-ssh"), *found] if runtime else found
