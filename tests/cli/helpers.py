"""Helpers for the tests of the command line."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

from tests.lab import Lab, wait_until


class Gate:
    """Jobs register with their PID and wait until the test opens the gate."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.path = folder / name
        self.arrivals = folder / f"{name}.arrivals"

    @property
    def wait(self) -> str:
        """Shell text that registers the job and waits for the gate."""
        return f"echo $$ >> '{self.arrivals}'; until [ -e '{self.path}' ]; do sleep 0.02; done"

    def arrived(self) -> list[int]:
        """PIDs of the jobs that wait at the gate."""
        try:
            return [int(line) for line in self.arrivals.read_text().split()]
        except FileNotFoundError:
            return []

    def wait_for(self, count: int = 1) -> list[int]:
        wait_until(lambda: len(self.arrived()) >= count, what=f"{count} jobs at {self.path}")
        return self.arrived()

    def open(self) -> None:
        self.path.touch()


class Terminal:
    """A stoker command on a pseudo-terminal of a given size."""

    def __init__(self, lab: Lab, *words: str, lines: int = 24, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._process = lab.popen(
            *words, stdin=theirs, stdout=theirs, stderr=theirs, env={"TERM": "xterm"}
        )
        os.close(theirs)
        self.text = ""

    def read(self) -> bool:
        """Read more output; returns False at the end."""
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # EIO: the other end of the terminal was closed
            return False
        self.text += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def read_until(self, text: str) -> None:
        while text not in self.text:
            assert self.read(), f"no `{text}` in {self.text!r}"

    def write(self, data: bytes) -> None:
        """Type text."""
        os.write(self._ours, data)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def close(self) -> int:
        """Read until the end and return the exit code."""
        while self.read():
            pass
        os.close(self._ours)
        return self._process.wait(timeout=60)


def shown(lab: Lab, *words: str, lines: int = 24, columns: int = 80) -> str:
    """The output of a command on a terminal of this size."""
    terminal = Terminal(lab, *words, lines=lines, columns=columns)
    terminal.close()
    return terminal.text


def refused(
    done: subprocess.CompletedProcess[str], code: int, message: str, hint: str | None = None
) -> None:
    """Assert that a command failed with exactly this error and hint, without a traceback."""
    said = f"error: {message}\n" + (f"hint: {hint}\n" if hint is not None else "")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def as_json(text: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(text)
    assert content["schema"] == 2
    return content


def without_times(text: str) -> str:
    """Text output with dates and durations replaced by DATE and TIME."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", text)
    text = re.sub(r"\b\d+\.\ds\b|\b\d+s\b|\b\d+m\d\ds\b", "TIME", text)
    return re.sub(r"TIME +", "TIME ", text)


def is_alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")
