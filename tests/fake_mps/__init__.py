"""A fake NVIDIA MPS: programs with NVIDIA's names, first on the PATH of a lab.

mps = FakeMps()
lab = host.lab(**mps.env())
mps.fail("MPS is not supported on this GPU")
...
mps.close()

Nothing of it computes: jobs see its folder in their environment and do not connect to it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.lab import wait_until

CONTROL, SERVER = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"
_PROGRAM = Path(__file__).with_name("control.py")


class FakeMps:
    """MPS of one user; its processes end with `close`."""

    def __init__(self) -> None:
        # Not pytest's folder: paths of sockets have at most 108 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
        self.run = self.folder / "r"
        self._bin = self.folder / "bin"
        self._bin.mkdir()
        self.install()

    def env(self, idle: str = "60") -> dict[str, str]:
        return {
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "FAKE_MPS": str(self.folder),
            "STOKER_MPS_DIR": str(self.run),
            "STOKER_MPS_IDLE": idle,
        }

    def install(self) -> None:
        # A shell script that executes Python would lose the name of the process.
        for name, kind in ((CONTROL, "control"), (SERVER, "server")):
            link = self._bin / name
            text = f"#!{sys.executable} -I\n{_MAIN.format(path=str(_PROGRAM), kind=kind)}"
            link.write_text(text)
            link.chmod(0o755)

    def uninstall(self) -> None:
        (self._bin / CONTROL).unlink()

    def fail(self, text: str) -> None:
        (self.folder / "fail").write_text(text)

    def hang(self) -> None:
        (self.folder / "hang").touch()

    def refuse_servers(self) -> None:
        (self.folder / "no_server").touch()

    def set_clients(self, *pids: int) -> None:
        (self.folder / "clients").write_text("".join(f"{pid}\n" for pid in pids))

    def starts(self) -> list[str]:
        """The GPUs of all control daemons that were started."""
        try:
            return (self.folder / "starts").read_text().split()
        except FileNotFoundError:
            return []

    def state(self) -> dict[str, Any]:
        """The state of the only GPU with MPS; empty if there is none."""
        for path in self.run.glob("*/state"):
            found: dict[str, Any] = json.loads(path.read_text())
            return found
        return {}

    def wait_for(self, state: str) -> dict[str, Any]:
        wait_until(lambda: self.state().get("state") == state, what=f"MPS is {state}")
        return self.state()

    def processes(self) -> dict[int, str]:
        """All monitors, control daemons and servers: command by PID."""
        wanted = f"FAKE_MPS={self.folder}".encode()
        found = {}
        for entry in os.listdir("/proc"):
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
            is_ours = CONTROL in command or SERVER in command or "monitor_process" in command
            if entry.isdigit() and wanted in environment and is_ours:
                found[int(entry)] = command
        return found

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)


_MAIN = """import runpy, sys
sys.argv = [sys.argv[0], {kind!r}, *sys.argv[1:]]
runpy.run_path({path!r}, run_name="__main__")
"""
