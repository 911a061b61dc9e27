"""The keeper of a foreground run: when the run dies, it ends the run's jobs.

python -m stoker.supervisor.keeper TAG_BASE     (stdin: a pipe that the run holds open)
"""

from __future__ import annotations

import os
import signal
import sys

from stoker.supervisor import members


def main() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    members.kill(int(sys.argv[1]), shift=32, patience=5.0)


if __name__ == "__main__":
    main()
