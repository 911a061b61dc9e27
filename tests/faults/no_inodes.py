"""Inside `unshare -m`: no inodes are left for jobs or for another runner."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.lab import Lab, wait_until

place = Path(sys.argv[1])
subprocess.run(
    ["mount", "-t", "tmpfs", "-o", "size=32m,nr_inodes=200,mode=700", "tmpfs", str(place)],
    check=True,
)
lab = Lab(place, devices=1)
fillers: list[Path] = []


def fill() -> None:
    try:
        while True:
            path = place / f"filler{len(fillers)}"
            path.touch()
            fillers.append(path)
    except OSError:
        pass


def free() -> None:
    while fillers:
        fillers.pop().unlink()


try:
    assert lab.wait(lab.submit("echo one")) == 0
    daemon = lab.daemon_pid()
    fill()
    job = lab.submit("echo two; exit 3")
    wait_until(lambda: "No space left on device" in lab.ok("why", str(job)))
    assert "starts now" not in lab.ok("why", str(job))
    assert "No space left on device" in lab.ok()
    assert "no inodes left" in lab.run("doctor").stdout
    free()
    assert lab.wait(job) == 3
    assert "No space" not in lab.ok()

    fill()
    lab.kill_runner()
    log = lab.state_dir / "daemon.log"
    wait_until(lambda: "in 2 seconds" in log.read_text(), what=log.read_text())
    starts = re.findall(r"the runner died.* starts another one (.*)", log.read_text())
    # a runner that dies before it has connected counts as a try, but has no line of its own
    delays = [0 if start == "now" else int(start.split()[1]) for start in starts]
    assert delays == sorted(delays) and delays[-1] == 2 and len(delays) <= 8, starts
    assert "the runner cannot start: No space left on device" in log.read_text()
    assert lab.daemon_pid() == daemon
    free()
    assert lab.wait(lab.submit("exit 4")) == 4
    assert lab.daemon_pid() == daemon
finally:
    free()
    lab.close()
    os.chdir("/")
