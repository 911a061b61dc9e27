"""Interactive shells on a pseudo-terminal, in which a test types and presses Tab."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.docs.pages import environment
from tests.lab import HANG_SECONDS, Lab

_ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[a-zA-Z]|\x1b[=>()][A-Z0-9]?|\x1b\][^\x07]*\x07|[\x07\x0f]")


def has_shell(name: str) -> None:
    """Skip the test if the shell is not installed; tests/system_packages.py installs it."""
    if shutil.which(name) is None:
        message = f"{name} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


class Shell:
    """bash or zsh with Stoker's completion, without the configuration of the user."""

    def __init__(self, lab: Lab, name: str) -> None:
        has_shell(name)
        folder = lab.folder
        env = environment(lab) | {"TERM": "xterm", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        script = Path(folder, "_stoker")
        script.write_text(lab.ok("completion", name))
        words = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[name]
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._text = ""
        start = {
            "bash": "bind 'set bell-style none'; bind 'set page-completions off'; PS1='ready> ';"
            " source ./_stoker",
            "zsh": "PS1='ready> '; LISTMAX=1000; fpath=($PWD $fpath); autoload -Uz compinit;"
            " compinit -u -D; setopt no_beep no_always_last_prompt",
        }[name]
        self.type(f"{start}; echo set''up\n")
        self.expect("setup")
        self.expect("ready> ")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def expect(self, text: str) -> str:
        """Wait until the terminal shows a text; returns what it showed until then."""
        deadline = time.monotonic() + HANG_SECONDS
        while text not in self._text:
            left = deadline - time.monotonic()
            ready = select.select([self._ours], [], [], max(0.0, left))[0]
            assert ready, f"no `{text}` in {self._text!r}"
            data = os.read(self._ours, 1 << 16).decode("utf-8", "replace")
            self._text = _ESCAPES.sub("", self._text + data)
        seen, _, self._text = self._text.partition(text)
        return seen + text

    def clear_line(self) -> None:
        """Remove what was typed."""
        self.type("\x15\n")
        self.type("echo cle''ared\n")
        self.expect("cleared\r\n")
        self.expect("ready> ")

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._ours)
