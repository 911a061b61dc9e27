"""Updates the state file after a `schedule` process was killed.

The cleanup process of the foreground run ends the task itself. The update is for scripts that read
the file without calling `schedule`. While the task runs, a shell waits for the end of a pipe, which
needs less memory than a Python process.

python -m stoker.compat.schedule.state_repair TASK_PID SCHEDULE_PID
"""

from __future__ import annotations

import os
import sys
import time

from stoker.compat.schedule.gpus import Gpus
from stoker.compat.schedule.state_file import StateFile

_MAX_POLLS = 100
_POLL_SECONDS = 0.1


class StateRepair:
    def __init__(self, pid: int) -> None:
        """Start the waiting shell for the task `pid`."""
        reading, self._writing = os.pipe2(os.O_CLOEXEC)
        module = "stoker.compat.schedule.state_repair"
        program = (sys.executable, "-P", "-m", module, str(pid), str(os.getpid()))
        self.pid = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", 'read -r _ && exit; exec "$@"', "schedule", *program],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        os.close(reading)

    def dismiss(self) -> None:
        """End the shell, because this process updates the file itself."""
        try:
            os.write(self._writing, b"\n")
        except BrokenPipeError:
            pass  # the shell was killed
        os.close(self._writing)


def main(pids: set[int]) -> None:
    """Update the file until it shows none of the PIDs.

    While a process of the task is alive, the lease still names the dead `schedule`.
    """
    state = StateFile(Gpus().actual_state)
    for _ in range(_MAX_POLLS):
        if all(entry.task_pid not in pids for entry in state.read()):
            break
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    main({int(word) for word in sys.argv[1:]})
