"""Kills the jobs of a foreground run that died; executed by its cleanup process.

python -m stoker.engine.supervisor.foreground_cleanup TAG_BASE
"""

from __future__ import annotations

import signal
import sys

from stoker.engine.supervisor.kill_processes import kill_all
from stoker.engine.supervisor.start_hooks import find_hook


def main() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    kill_all(int(sys.argv[1]), timeout=5.0)
    remove_containers = find_hook("remove_containers")
    if remove_containers is not None:
        remove_containers(int(sys.argv[1]))


if __name__ == "__main__":
    main()
