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
from typing import Any

from tests.lab import Lab


class Terminal:
    """A stoker command on a pseudo-terminal of a given size."""

    def __init__(self, lab: Lab, *words: str, lines: int = 24, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.modes_before = self.modes()
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

    @property
    def pid(self) -> int:
        return self._process.pid

    def modes(self) -> list[object]:
        """The modes of the terminal, such as whether it echoes."""
        return termios.tcgetattr(self._ours)

    def interrupt(self) -> None:
        self.signal(signal.SIGINT)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.signal(signal.SIGWINCH)  # the kernel sends it only to a session of its own

    def close(self) -> int:
        """Read until the end and return the exit code."""
        while self.read():
            pass
        os.close(self._ours)
        return self._process.wait()


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
