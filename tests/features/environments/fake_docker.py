"""A fake docker: a service that runs containers, and a client program on the PATH.

As with the real one, the process of a container is a child of the service, not of the client, has
only the variables that the client passes, and goes on when the client is killed. The client passes
signals on and exits with the code of the container. The commands are `run`, `rm --force`, `ps`,
`pause` and `unpause`; each call is recorded.
"""

from __future__ import annotations

import array
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

_RLIMIT_LOCKS = 10

CLIENT = f"""\
#!{sys.executable} -IS
import array, json, os, signal, socket, sys

def call(request, files=()):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "docker.sock"))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([json.dumps(request).encode() + b"\\n"], rights)
    return connection

words, env = sys.argv[1:], dict(os.environ)
connection = call({{"words": words, "env": env}}, [1, 2])
name = next((word[7:] for word in words if word.startswith("--name=")), None)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: call({{"signal": number, "name": name}}).close())
answer = b""
while part := connection.recv(4096):
    answer += part
answer = json.loads(answer)
sys.stdout.write(answer["output"])
sys.stdout.flush()
os._exit(answer["code"])
"""


class FakeDocker:
    """`with FakeDocker(folder) as docker:` puts `docker` into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.containers: dict[str, subprocess.Popen[bytes]] = {}
        self.labels: dict[str, list[str]] = {}
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> FakeDocker:
        self.folder.mkdir(parents=True, exist_ok=True)
        program = self.folder / "docker"
        program.write_text(CLIENT)
        program.chmod(0o755)
        self._listener.bind(str(self.folder / "docker.sock"))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for container in list(self.containers.values()):
            _kill(container)
            container.wait()

    @property
    def running(self) -> list[str]:
        """The names of the containers that run."""
        return [name for name, one in list(self.containers.items()) if one.poll() is None]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        files = array.array("i")
        data = b""
        while not data.endswith(b"\n"):
            part, rights, _, _ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(8))
            for _, _, content in rights:
                files.frombytes(content)
            if not part:
                return
            data += part
        request = json.loads(data)
        if "signal" in request:
            with suppress(ProcessLookupError, KeyError):
                os.killpg(self.containers[request["name"]].pid, request["signal"])
            connection.close()
            return
        self.calls.append(request["words"])
        self.environments.append(request["env"])
        code, output = self._answer(request, list(files))
        for descriptor in files:
            os.close(descriptor)
        with suppress(OSError):  # the client was killed
            connection.sendall(json.dumps({"code": code, "output": output}).encode())
        connection.close()

    def _answer(self, request: dict[str, object], files: list[int]) -> tuple[int, str]:
        words = list(request["words"])  # type: ignore[call-overload]
        if words[0] == "run":
            return self._run(words[1:], dict(request["env"]), files)  # type: ignore[call-overload]
        if words[0] == "ps":
            label = words[-1].removeprefix("label=")
            names = [name for name in self.running if label in self.labels[name]]
            return 0, "".join(f"{name}\n" for name in names)
        for name in words[1:]:
            container = self.containers.get(name)
            if container is None:
                continue
            if words[0] == "rm":
                _kill(container)
                container.wait()
        return 0, ""

    def _run(self, words: list[str], env: dict[str, str], files: list[int]) -> tuple[int, str]:
        at = next(number for number, word in enumerate(words) if not word.startswith("-"))
        options, image, command = words[:at], words[at], words[at + 1 :]
        values = dict(option.partition("=")[::2] for option in options)
        if image == "missing":
            os.write(files[1], b"docker: Error response from daemon: no such image: missing.\n")
            return 125, ""
        inside = {"PATH": os.environ["PATH"]}
        for option in options:
            name, has_value, value = option.removeprefix("--env=").partition("=")
            if option.startswith("--env="):
                inside[name] = value if has_value else env[name]
        try:
            container = subprocess.Popen(
                command, cwd=values["--workdir"], env=inside, stdout=files[0], stderr=files[1],
                stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_without_tag,
            )  # fmt: skip
        except FileNotFoundError:
            text = f"docker: exec: {command[0]}: executable file not found in $PATH\n"
            os.write(files[1], text.encode())
            return 127, ""
        name = values["--name"]
        self.labels[name] = [o.removeprefix("--label=") for o in options if "--label=" in o]
        self.containers[name] = container
        code = container.wait()
        return code if code >= 0 else 128 - code, ""


def _without_tag() -> None:
    """A container does not inherit the limits of the process that asked for it."""
    resource.setrlimit(_RLIMIT_LOCKS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _kill(container: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(container.pid, signal.SIGKILL)
