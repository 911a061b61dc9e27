"""Inside `unshare -m`: a 12 MB file system is full for a while, under a running daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.lab import Lab, wait_until

place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)], check=True)
lab = Lab(place, devices=1)
go, filler = Path("/tmp") / f"go-{os.getpid()}", place / "filler"
try:
    job = lab.submit(f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
    wait_until(lambda: lab.state(job) == "running")
    daemon = lab.daemon_pid()
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    refused = lab.run("submit", "--file", "-", input="echo x\n" * 20000)
    assert refused.returncode == 75, refused
    assert "full" in refused.stderr and "Traceback" not in refused.stderr
    while lab.run("submit", "--hold", "-q", f"echo {'x' * 3000}").returncode == 0:
        pass  # until the last free page of the database is used
    go.touch()  # the job ends while nothing can be written
    wait_until(lambda: not lab.processes())
    filler.unlink()
    wait_until(lambda: lab.state(job) == "failed")  # recorded by the daemon itself
    assert lab.daemon_pid() == daemon
    assert lab.wait(job) == 7, lab.job(job)
    again = lab.submit("exit 3")
    assert lab.wait(again) == 3
finally:
    go.unlink(missing_ok=True)
    lab.close()
