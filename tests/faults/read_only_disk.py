"""Inside `unshare -m`: an ext4 file system becomes read-only while daemon and runner are running.

The kernel does this when it finds a disk error. Unlike after an ordinary remount, writes to files
that are already open fail too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.lab import Lab, wait_until

folder = Path(sys.argv[1])
image, place = folder / "image", folder / "place"
with open(image, "wb") as file:
    file.truncate(32 << 20)
subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
place.mkdir()
subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(place)], check=True)
source = subprocess.run(
    ["findmnt", "-no", "SOURCE", str(place)], check=True, capture_output=True, text=True
).stdout.strip()
lab = Lab(place, devices=4)
go = folder / "go"
try:
    ends = lab.submit("-o", "/dev/null", f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
    limited = lab.submit("--time-limit", f"{sys.argv[2]}s", "--grace", "0.1", "sleep 600")
    cancelled = lab.submit("--grace", "0.1", "sleep 601")
    waits = lab.submit("--gpus", "4", "true")
    wait_until(lambda: [lab.state(job) for job in (ends, limited, cancelled)] == ["running"] * 3)
    daemon, runner = lab.daemon_pid(), lab.runner_pid()
    Path(f"/sys/fs/ext4/{os.path.basename(source)}/trigger_fs_error").write_text("a test")
    assert lab.run("submit", "true").returncode in (75, 77)
    lab.ok("cancel", str(cancelled))
    go.touch()
    wait_until(lambda: not lab.processes(), what="time limit, cancel and exit")
    assert (lab.daemon_pid(), lab.runner_pid()) == (daemon, runner)
    problem = "Read-only file system"
    wait_until(lambda: problem in lab.ok("why", str(waits)), what=lab.ok("why", str(waits)))
    assert problem in lab.ok()
    findings = json.loads(lab.run("doctor", "--json").stdout)["findings"]
    assert any(problem in one["what"] and one["level"] == "bad" for one in findings), findings
    lab.kill_runner()  # no other runner can start now
    wait_until(lambda: "runner" in lab.ok("why", str(waits)))
    assert lab.daemon_pid() == daemon
finally:
    go.unlink(missing_ok=True)
    lab.close()
    subprocess.run(["umount", "-l", str(place)])
