"""Puts the state file right after a `schedule` that was killed; its task is ended by the keeper.

Nobody needs that but scripts that read the file without calling `schedule`. While the task runs, a
shell waits for our end of a pipe to close: cheaper than a Python that waits.

python -m stoker.compat.schedule.state_repair PID PID        (of the task and of its `schedule`)
"""

from __future__ import annotations

import os
import sys
import time

from stoker.compat.schedule.gpus import Gpus
from stoker.compat.schedule.state_file import StateFile

_LOOKS = 100
_LOOK_AGAIN_SECONDS = 0.1


class StateRepair:
    def __init__(self, pid: int) -> None:
        """Stand by for a task."""
        reading, self._writing = os.pipe2(os.O_CLOEXEC)
        module = "stoker.compat.schedule.state_repair"
        program = (sys.executable, "-P", "-m", module, str(pid), str(os.getpid()))
        self.pid = os.posix_spawn(
            "/bin/sh", ["/bin/sh", "-c", 'read -r _ && exit; exec "$@"', "schedule", *program],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )  # fmt: skip
        os.close(reading)

    def dismiss(self) -> None:
        """We live, and put it right ourselves."""
        try:
            os.write(self._writing, b"\n")
        except BrokenPipeError:
            pass  # somebody ended it
        os.close(self._writing)


def main(pids: set[int]) -> None:
    """Until the file shows none of them: as long as something of the task lives, its lease is still
    in the name of the dead `schedule`."""
    state = StateFile(Gpus().truth)
    for _ in range(_LOOKS):
        if all(entry.task_pid not in pids for entry in state.read()):
            break
        time.sleep(_LOOK_AGAIN_SECONDS)


if __name__ == "__main__":
    main({int(word) for word in sys.argv[1:]})
