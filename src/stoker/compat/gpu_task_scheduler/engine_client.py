"""The program's end of the line to the engine's process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

from stoker.errors import Broken, Error

_ENGINE = "stoker.compat.gpu_task_scheduler.engine"
_READ = 1 << 16


class Link:
    """Opened with the slots; whatever ends it also ends what runs."""

    def __init__(self, devices: list[str], env: dict[str, str]) -> None:
        self._channel, theirs = socket.socketpair()
        self._rest = b""
        words = [sys.executable, "-P", "-m", _ENGINE, str(theirs.fileno()), json.dumps(devices)]
        try:
            # A session of its own: Ctrl-C is for the program, which tells the engine.
            self._process = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                start_new_session=True,
            )  # fmt: skip
        finally:
            theirs.close()

    def send(self, **order: Any) -> None:
        try:
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            pass  # `receive` tells why

    def receive(self) -> dict[str, Any]:
        """What happens next; waits for it."""
        while b"\n" not in self._rest:
            data = self._channel.recv(_READ)
            if not data:
                raise self._broken()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        what: dict[str, Any] = json.loads(line)
        if "error" in what:
            raise Error(what["error"], what["hint"])
        return what

    def close(self) -> None:
        """Returns when nothing is left of what ran."""
        self._channel.close()
        try:
            self._process.wait()
        except BaseException:  # Ctrl-C once more
            self._process.send_signal(signal.SIGKILL)  # its keeper ends the tasks
            self._process.wait()
            raise

    def _broken(self) -> Error:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Broken(f"the scheduler's process (pid {self._process.pid}) ended early: {how}",
                      "its tasks were ended, too; run this again")  # fmt: skip


def environment(base: dict[str, str]) -> dict[str, str]:
    """What changed in our variables since then; tasks get them as they are when they start."""
    changed = {key: value for key, value in os.environ.items() if base.get(key) != value}
    changed.pop("CUDA_VISIBLE_DEVICES", None)  # that is the slot's
    return changed
