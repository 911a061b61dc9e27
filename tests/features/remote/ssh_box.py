"""Another machine for tests: a real sshd on loopback, with a queue, a home and a PATH of its own.

box.here.ok("--host", "box", "ls")     # on this machine, through ssh
box.there.ok("ls")                     # the same on the box itself
box.cut()                              # kills the ssh connections, like a lost network
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.lab import Lab, wait_until

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"

# The program `stoker` on the box. A test can stop it before or after it runs (`hold`).
_PROGRAM = """#!/bin/sh
[ "$1" = box ] || [ -e "{folder}/hold-all" ] || exec {python} -m stoker "$@"
wait_for() {{
  [ -e "{folder}/hold-$1-$2" ] || return
  : > "{folder}/held"
  while [ -e "{folder}/hold-$1-$2" ]; do sleep 0.02; done
}}
trap : INT
wait_for before "$2"
{python} -m stoker "$@"
code=$?
wait_for after "$2"
exit $code
"""


class Sshd:
    """A server with its own keys on a free port. Commands run in the environment of one box."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
            )
        shutil.copy(folder / "user.pub", folder / "authorized")
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # where sshd isolates itself
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        (folder / "run").write_text(f'. "{folder}/environment"\nexec $SHELL -c "$command"\n')
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication no\nPidFile none\nPermitRootLogin yes\nMaxSessions 50\n"
            # The user's shell runs the command; bash would read the .bashrc of the real home.
            f"SetEnv HOME={folder}\n"
            f'ForceCommand command="$SSH_ORIGINAL_COMMAND"; export command; exec /bin/sh '
            f"{folder}/run\n"
        )
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [SSHD, "-D", "-f", self.folder / "sshd_config", "-E", self.folder / "sshd.log"]
        )
        wait_until(self._answers, what="sshd")

    def _answers(self) -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def connections(self) -> list[int]:
        """The first process of each open connection."""
        parents = _sshd_processes()
        return [pid for pid, parent in parents.items() if parent == self.process.pid]

    def cut(self) -> None:
        """Kill all connections; clients may connect again."""
        killed = self._kill_connections()
        wait_until(lambda: not killed & set(_sshd_processes()), what="the end of the connections")

    def stop(self) -> None:
        """Stop the server and kill all connections."""
        self.process.send_signal(signal.SIGSTOP)  # it accepts no more
        self._kill_connections()
        self.process.kill()
        self.process.wait()

    def _kill_connections(self) -> set[int]:
        """Since OpenSSH 9.8, a child of the first process serves a connection, for root too."""
        parents, found = _sshd_processes(), {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        found.remove(self.process.pid)
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return found


def _sshd_processes() -> dict[int, int]:
    """The processes of all ssh servers, with their parents."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                name, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")
            except OSError:
                continue
            state, parent = rest.split()[:2]
            if "(sshd" in name and state != "Z":
                found[int(entry)] = int(parent)
    return found


class SshBox:
    """Labs on both ends of an ssh connection; `box` is the name of the host in ssh's config."""

    def __init__(self, sshd: Sshd, folder: Path, **env: str) -> None:
        self.sshd = sshd
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []
        self._sockets = tempfile.mkdtemp(prefix="s-", dir="/tmp")  # their paths must be short
        for name in ("here", "there", "there/home", "there/bin"):
            (folder / name).mkdir()
        self.home = folder / "there" / "home"
        self._config = folder / "ssh_config"
        self._config.write_text(
            f"Host box gpu-box\n  HostName 127.0.0.1\n  Port {sshd.port}\n"
            f"  IdentityFile {sshd.folder}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking no\n"
            "  LogLevel ERROR\n"
        )
        self.here = Lab(folder / "here", devices=1)
        self.here.env |= {
            "STOKER_SSH": f"ssh -F {self._config}",
            "STOKER_RECONNECT": "60",
            "XDG_RUNTIME_DIR": self._sockets,
        }
        self.there = Lab(folder / "there", devices=2, **env)
        self.there.env |= {
            "HOME": str(self.home),
            "PATH": f"{folder}/there/bin:/usr/local/bin:/usr/bin:/bin",
            "ON_THE_BOX": "1",
        }
        program = folder / "there" / "bin" / "stoker"
        program.write_text(_PROGRAM.format(folder=folder, python=sys.executable))
        program.chmod(0o755)
        self.set_environment()

    def set_environment(self, **changes: str | None) -> None:
        """The environment of sshd's commands, as sshd and PAM would set it."""
        names = ("HOME", "PATH", "SHELL", "ON_THE_BOX")
        env: dict[str, str | None] = {name: self.there.env[name] for name in names}
        env |= {name: value for name, value in self.there.env.items() if name[:7] == "STOKER_"}
        env |= changes
        lines = [f"export {name}='{value}'\n" for name, value in env.items() if value is not None]
        lines.append(f'cd "{self.home}"\n')
        (self.sshd.folder / "environment").write_text("".join(lines))

    # -- commands through ssh ------------------------------------------------------------------

    def run(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return self.here.run("--host", "box", *words, **kwargs)

    def ok(self, *words: str, **kwargs: Any) -> str:
        return self.here.ok("--host", "box", *words, **kwargs)

    def popen(self, *words: str, **kwargs: Any) -> subprocess.Popen[str]:
        process = self.here.popen("--host", "box", *words, **kwargs)
        self._started.append(process)
        return process

    # -- failures ------------------------------------------------------------------------------

    def hold(self, when: str, verb: str) -> Path:
        """Stop the next `stoker box VERB` before or after it runs, until the file is removed."""
        path = self.folder / f"hold-{when}-{verb}"
        path.touch()
        return path

    def wait_until_held(self) -> None:
        wait_until((self.folder / "held").exists, what="the command on the box")
        (self.folder / "held").unlink()

    def cut(self) -> None:
        self.sshd.cut()

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        for path in self.folder.glob("hold-*"):
            path.unlink()
        self.there.close()
        self.here.close()
        if self.sshd.process.poll() is None:
            self.cut()
        else:  # stopped by the test
            self.sshd.start()
        for name in os.listdir(f"{self._sockets}/stoker-ssh") if self._has_sockets() else ():
            socket_path = f"{self._sockets}/stoker-ssh/{name}"
            command = ["ssh", "-F", str(self._config), "-S", socket_path, "-O", "exit", "box"]
            subprocess.run(command, capture_output=True)
        shutil.rmtree(self._sockets)

    def _has_sockets(self) -> bool:
        return os.path.isdir(f"{self._sockets}/stoker-ssh")
