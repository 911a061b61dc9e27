"""The connection of the program to the process of the engine."""

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


class EngineClient:
    """Starts the engine with the slots; closing the connection ends all running tasks."""

    def __init__(self, devices: list[str], env: dict[str, str]) -> None:
        self._channel, engine_end = socket.socketpair()
        self._rest = b""
        words = [sys.executable, "-P", "-m", _ENGINE, str(engine_end.fileno()), json.dumps(devices)]
        try:
            # In its own session: the program handles Ctrl-C and then closes the connection.
            self._process = subprocess.Popen(
                words,
                env=env,
                stdin=subprocess.DEVNULL,
                pass_fds=[engine_end.fileno()],
                start_new_session=True,
            )
        finally:
            engine_end.close()

    def send(self, **order: Any) -> None:
        try:
            self._channel.sendall(json.dumps(order).encode() + b"\n")
        except BrokenPipeError:
            pass  # `receive` raises the error

    def receive(self) -> dict[str, Any]:
        """Wait for the next event. Raises Error if the engine failed."""
        while b"\n" not in self._rest:
            data = self._channel.recv(_READ)
            if not data:
                raise self._broken()
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        if "error" in event:
            raise Error(event["error"], event["hint"])
        return event

    def close(self) -> None:
        """Close the connection; returns when no process of a task is left."""
        self._channel.close()
        try:
            self._process.wait()
        except BaseException:  # a second Ctrl-C
            self._process.send_signal(signal.SIGKILL)  # its cleanup process ends the tasks
            self._process.wait()
            raise

    def _broken(self) -> Error:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Broken(
            f"the scheduler process (pid {self._process.pid}) died: {how}",
            "its tasks were ended too; run the program again",
        )


def environment(base: dict[str, str]) -> dict[str, str]:
    """The variables that differ from `base`: a task gets the environment at its start."""
    changed = {key: value for key, value in os.environ.items() if base.get(key) != value}
    changed.pop("CUDA_VISIBLE_DEVICES", None)  # set by the slot
    return changed
