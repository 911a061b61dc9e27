"""A host for tests: PID, mount and host name namespaces for the daemons of other systems.

All processes in it end with it, and it ends when the test process ends, even with SIGKILL: the
kernel kills every process of a PID namespace when its first process dies. A new network namespace
is optional, because programs outside of the host cannot connect to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.helpers import is_alive
from tests.lab import wait_until

# The first process ignores SIGCHLD, so that the kernel reaps processes whose parent exited.
# Locks in /run/lock and the boot id belong to one host; the rest of the file system is shared.
_FIRST_PROCESS = """
set -e
hostname "$1"
[ -z "$2" ] || ip link set lo up
[ ! -d /run/lock ] || mount -t tmpfs -o mode=1777,size=1m none /run/lock
file=$(mktemp)
cat /proc/sys/kernel/random/uuid > "$file"
mount --bind "$file" /proc/sys/kernel/random/boot_id
rm "$file"
shift 2
while [ $# -gt 0 ]; do mount --bind "$2" "$1"; shift 2; done
echo ready
exec env --ignore-signal=CHLD sleep infinity
"""


def has_namespaces() -> bool:
    """Whether this user may create namespaces."""
    if not all(map(shutil.which, ("unshare", "nsenter", "setpriv", "mount", "hostname", "ip"))):
        return False
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--net", "true"]
    return subprocess.call(words, stderr=subprocess.DEVNULL) == 0


class SimulatedHost:
    """Namespaces that programs are started in; PIDs are those outside of the namespace."""

    def __init__(
        self, name: str, *, mounts: Mapping[Path, Path] | None = None, own_network: bool = False
    ) -> None:
        """Create the host.

        name -- what programs in it see as the host name
        mounts -- files or folders that they see in place of others: {Path("/etc/hosts"): other}
        own_network -- whether it has a loopback interface of its own and no other
        """
        unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
        unshare += ["--net"] if own_network else []
        script = ["sh", "-c", _FIRST_PROCESS, "first", name, "net" if own_network else ""]
        script += [str(path) for pair in (mounts or {}).items() for path in pair]
        self._unshare = subprocess.Popen(
            # The kernel kills `unshare` when this process ends, and then its child.
            ["setpriv", "--pdeathsig", "KILL", *unshare, *script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._unshare.stdout is not None
        ready = self._unshare.stdout.read(6)
        self._unshare.stdout.close()
        assert ready == b"ready\n", f"cannot create the host {name!r}"
        self.pid = _children(self._unshare.pid)[0]
        self._namespace = os.readlink(f"/proc/{self.pid}/ns/pid")
        self._programs: list[subprocess.Popen[bytes]] = []

    def command_prefix(self) -> list[str]:
        """Words before a command that run it inside; its exit code is passed on."""
        namespaces = ("--pid", "--mount", "--uts", "--net")
        return ["nsenter", f"--target={self.pid}", *namespaces, "--root", "--wd", "--"]

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside and wait for it."""
        words = [*self.command_prefix(), *argv]
        return subprocess.run(words, env=env, capture_output=True, text=True)

    def hide(self, folder: Path) -> None:
        """Let programs inside see an empty folder that cannot be written."""
        done = self.run(["mount", "-t", "tmpfs", "-o", "ro,size=4k", "none", str(folder)])
        assert done.returncode == 0, done.stderr

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        output: IO[bytes] | int = subprocess.DEVNULL,
    ) -> int:
        """Start a program inside; returns its PID."""
        words = [*self.command_prefix(), *argv]
        program = subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt of the tests is not for it
        )
        self._programs.append(program)
        wait_until(
            lambda: program.poll() is not None or _children(program.pid), what=f"start of {argv[0]}"
        )
        assert program.poll() is None, f"{argv[0]} exited with {program.returncode}"
        return _children(program.pid)[0]

    def processes(self) -> list[int]:
        """PIDs of all processes inside, without the first."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._has(pid)]

    def pid_outside(self, pid: int) -> int | None:
        """The PID, outside, of the process that has this PID inside."""
        return next((found for found in self.processes() if _inner_pid(found) == pid), None)

    def _has(self, pid: int) -> bool:
        try:
            return pid != self.pid and os.readlink(f"/proc/{pid}/ns/pid") == self._namespace
        except OSError:
            return False

    def stop(self) -> None:
        """Kill all processes inside at once, as a power failure does, and wait until they ended."""
        self._unshare.kill()
        self._unshare.wait()
        for program in self._programs:
            program.wait()
        wait_until(lambda: not self.processes(), what=f"end of {self.processes()}")


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal and wait until the process ended; no error if there is none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    wait_until(lambda: not is_alive(pid), what=f"end of process {pid}")


def _children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def _inner_pid(pid: int) -> int | None:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return None
