"""Inside `unshare -m`: jobs that use a FUSE file system whose program never answers."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from tests.lab import Lab, wait_until

folder = Path(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)


def mount(name: str) -> tuple[Path, int]:
    """Mount a file system that hangs, one per job: a process that waits for the lock of its
    folder cannot even be killed."""
    place = folder / name
    place.mkdir()
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    assert not libc.mount(b"dead", bytes(place), b"fuse", 6, options.encode()), ctypes.get_errno()
    return place, fuse


dead, fuse = mount("dead")
second, second_fuse = mount("second")
third, third_fuse = mount("third")
lab = Lab(folder, devices=4)
try:
    (folder / "script").write_text(f"#!{second}/python\n")
    (folder / "script").chmod(0o755)
    good = lab.submit("true")
    assert lab.wait(good) == 0
    runner = lab.runner_pid()
    # Held, because `submit` checks the paths itself and would hang.
    held = [
        lab.submit("--hold", "-o", f"{folder}/%j.out", "exit 3"),
        lab.submit("--hold", "--time-limit", "1s", "--grace", "0.1", str(folder / "script")),
        lab.submit("--hold", "--grace", "0.1", f"{folder}/tool x"),
    ]
    (folder / f"{held[0]}.out").symlink_to(dead / "out")
    (folder / "tool").symlink_to(third / "bin/tool")
    lab.ok("release", *map(str, held))
    wait_until(lambda: lab.job(held[2])["state"] in ("starting", "running"))
    assert lab.wait(lab.submit("exit 5")) == 5  # other jobs start
    lab.wait(held[1])
    assert lab.job(held[1])["cause"] == "time_limit", lab.job(held[1])  # time limits are enforced
    lab.ok("cancel", str(held[2]))
    lab.wait(held[2])
    assert lab.state(held[2]) == "cancelled"  # cancel works
    assert lab.state(held[0]) in ("starting", "running")
    # The daemon reads the end of the output of a failed job; here that hangs.
    (folder / "prepared").symlink_to(second / "x")
    rename = f"import os; os.rename('{folder}/prepared', '{folder}/fails'); os._exit(7)"
    fails = lab.submit("-o", f"{folder}/fails", "--", sys.executable, "-c", rename)
    assert lab.wait(fails) == 7
    lab.kill_daemon()  # the runner answers a new daemon
    wait_until(lambda: lab.daemon_pid() is not None)
    assert lab.wait(lab.submit("exit 6")) == 6
    os.close(fuse)  # now every call fails instead of hanging
    lab.wait(held[0])
    job = lab.job(held[0])
    assert job["cause"] == "start_failed" and job["exit_code"] == 126, job
    assert lab.runner_pid() == runner
finally:
    for descriptor in (second_fuse, third_fuse):
        os.close(descriptor)
    lab.close()
