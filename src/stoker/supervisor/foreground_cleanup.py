"""What the keeper of a foreground run becomes when the run is gone: it ends the run's jobs.

python -m stoker.supervisor.foreground_cleanup TAG_BASE
"""

from __future__ import annotations

import signal
import sys

from stoker.supervisor.kill_processes import kill_all


def main() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    kill_all(int(sys.argv[1]), patience=5.0)


if __name__ == "__main__":
    main()
