"""NVIDIA's `nvidia-cuda-mps-control`: start a control daemon, send it commands, find its processes.

Every call has a time limit, because the driver may hang. Only the monitor process makes them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time

from stoker.engine.daemon.gpus.process_owners import is_own_mps_process
from stoker.engine.supervisor.process_table import read_processes
from stoker.features.mps.mps_folder import MpsFolder, is_alive
from stoker.features.mps.mps_program import PROGRAM, START_SECONDS

_COMMAND_SECONDS = 5.0
_QUIT_SECONDS = 5.0
_POLL_SECONDS = 0.02
# Limits for jobs, which would limit the server of all jobs.
_NOT_INHERITED = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
)


class MpsError(Exception):
    """Why MPS does not work, in words."""


class MpsControl:
    """The control daemon of one folder."""

    def __init__(self, folder: MpsFolder) -> None:
        self._folder = folder
        self._env = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
        # The UUID: clients name their GPU by it too, so its index among several does not matter.
        self._env |= {
            "CUDA_VISIBLE_DEVICES": folder.uuid,
            "CUDA_MPS_PIPE_DIRECTORY": folder.pipe,
            "CUDA_MPS_LOG_DIRECTORY": folder.log,
        }

    def start(self) -> None:
        """Start the control daemon and a server. Raises MpsError; then no process is left."""
        try:
            self._run([PROGRAM, "-d"], START_SECONDS)
            self.start_server()
        except MpsError:
            self.end()
            raise

    def start_server(self) -> int:
        """Start a server, unless one runs; returns its PID. Raises MpsError.

        Without this, the first job would start it, and fail where MPS does not work: on a GPU in
        exclusive mode of another user, or on one that is too old.
        """
        deadline = time.monotonic() + START_SECONDS
        self.send(f"start_server -uid {os.getuid()}")
        while not (servers := self.servers()):
            if time.monotonic() > deadline:
                raise MpsError(f"its server did not start{self._last_log_line()}")
            time.sleep(_POLL_SECONDS)
        return servers[0]

    def servers(self) -> list[int]:
        """PIDs of the servers that run. Raises MpsError if the control daemon does not answer."""
        words = self.send("get_server_list").split()
        return [int(word) for word in words if word.isdigit() and is_alive(int(word))]

    def clients(self) -> list[int]:
        """PIDs of the clients of all servers. Raises MpsError."""
        words = [word for server in self.servers() for word in self._clients_of(server)]
        return [int(word) for word in words if word.isdigit()]

    def _clients_of(self, server: int) -> list[str]:
        return self.send(f"get_client_list {server}").split()

    def send(self, command: str) -> str:
        """Send a command to the control daemon; returns its answer. Raises MpsError."""
        return self._run([PROGRAM], _COMMAND_SECONDS, f"{command}\n")

    def quit(self) -> None:
        """Stop the control daemon and its servers; whatever is left is killed."""
        try:
            self.send(f"quit -t {int(_QUIT_SECONDS)}")
        except MpsError:
            pass
        self.end()

    def end(self) -> None:
        """Kill what is left of the control daemon and its servers."""
        deadline = time.monotonic() + _QUIT_SECONDS
        number = signal.SIGTERM
        while pids := self.processes():
            if time.monotonic() > deadline:
                if number == signal.SIGKILL:
                    return  # stuck in the driver
                number, deadline = signal.SIGKILL, time.monotonic() + _QUIT_SECONDS
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            time.sleep(_POLL_SECONDS)

    def processes(self) -> list[int]:
        """PIDs of the control daemon and its servers, also of an earlier monitor."""
        wanted = f"CUDA_MPS_PIPE_DIRECTORY={self._folder.pipe}".encode()
        ours = (pid for pid in read_processes() if is_own_mps_process(pid))
        recorded = self._recorded_pid()
        return [pid for pid in ours if pid == recorded or wanted in _environment(pid)]

    def _recorded_pid(self) -> int:
        """The PID that the control daemon wrote to a file; 0 if there is none."""
        try:
            path = os.path.join(self._folder.pipe, f"{PROGRAM}.pid")
            with open(path, encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def control_pid(self) -> int:
        """The PID of the control daemon; 0 if it does not run."""
        for pid in self.processes():
            if b"control" in _command(pid) and b"server" not in _command(pid):
                return pid
        return 0

    def _run(self, command: list[str], seconds: float, text: str = "") -> str:
        # A file, not a pipe: a control daemon keeps it open.
        with tempfile.TemporaryFile() as output:
            try:
                code = subprocess.run(
                    command,
                    input=text.encode(),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    timeout=seconds,
                    start_new_session=True,
                    check=False,
                ).returncode
            except OSError as error:
                raise MpsError(f"`{PROGRAM}` cannot be started: {error.strerror}") from None
            except subprocess.TimeoutExpired:
                raise MpsError(f"`{PROGRAM}` did not answer within {seconds:.0f} seconds") from None
            output.seek(0)
            answer = output.read().decode("utf-8", "replace")
        if code:
            why = answer.strip().splitlines()
            detail = f": {why[-1].strip()[:200]}" if why else ""
            raise MpsError(f"`{PROGRAM}` failed with exit code {code}{detail}")
        return answer

    def _last_log_line(self) -> str:
        for name in ("server.log", "control.log"):
            try:
                with open(os.path.join(self._folder.log, name), encoding="utf-8") as file:
                    lines = file.read()[-4096:].strip().splitlines()
            except (OSError, ValueError):
                continue
            if lines:
                return f": {lines[-1].strip()[:200]}"
        return ""


def _environment(pid: int) -> list[bytes]:
    return _read(pid, "environ").split(b"\0")


def _command(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""
