"""A stand-in for NVIDIA's control program of MPS: control daemon, server and command client.

    nvidia-cuda-mps-control -d      start a control daemon
    nvidia-cuda-mps-control         send the commands on stdin to it
    nvidia-cuda-mps-server          a server, which the control daemon starts

Files in $FAKE_MPS make it fail: `fail` (its text is printed, exit code 1), `hang` (-d never
returns), `no_server` (servers do not start), `clients` (PIDs that get_client_list returns).
Every start is a line in `starts`, with CUDA_VISIBLE_DEVICES. The server is listed on its GPU by the
fake driver.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_MPS"])
PIPE = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent")) / "control"
SERVER_BYTES = 66 << 20


def serve_gpu() -> None:
    """The server: on the GPU until it is ended."""
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    claims = os.environ.get("FAKE_NVML_PROCS")
    if claims:
        (Path(claims) / str(os.getpid())).write_text(f"{gpu} {SERVER_BYTES}\n")
    signal.pause()


def start_daemon() -> int:
    if (FOLDER / "hang").exists():
        time.sleep(600)
    if (FOLDER / "fail").exists():
        print((FOLDER / "fail").read_text(), file=sys.stderr)
        return 1
    PIPE.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(PIPE))
    listener.listen()
    with open(FOLDER / "starts", "a", encoding="utf-8") as file:
        file.write(os.environ["CUDA_VISIBLE_DEVICES"] + "\n")
    if os.fork():
        return 0
    os.setsid()
    Control(listener).work()
    return 0


class Control:
    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.server: subprocess.Popen[bytes] | None = None

    def work(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        while True:
            stream, _ = self.listener.accept()
            with stream:
                words = stream.recv(4096).decode().split()
                stream.sendall(self.answer(words).encode() or b"\n")
                if words[:1] == ["quit"]:
                    self.end()

    def answer(self, words: list[str]) -> str:
        if words[:1] == ["get_server_list"]:
            is_running = self.server is not None and self.server.poll() is None
            return f"{self.server.pid}\n" if is_running and self.server is not None else ""
        if words[:1] == ["get_client_list"]:
            clients = FOLDER / "clients"
            return clients.read_text() if clients.exists() else ""
        is_dead = self.server is None or self.server.poll() is not None
        if words[:1] == ["start_server"] and is_dead and not (FOLDER / "no_server").exists():
            self.server = subprocess.Popen(
                [str(FOLDER / "bin" / "nvidia-cuda-mps-server")], stdin=subprocess.DEVNULL
            )
        return ""

    def end(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        PIPE.unlink(missing_ok=True)
        os._exit(0)


def send(text: str) -> int:
    for line in text.splitlines():
        with socket.socket(socket.AF_UNIX) as stream:
            try:
                stream.connect(str(PIPE))
            except OSError:
                print("Cannot find MPS control daemon process")
                return 1
            stream.sendall(line.encode())
            print(stream.recv(4096).decode(), end="")
    return 0


def main() -> int:
    if sys.argv[1] == "server":
        serve_gpu()
        return 0
    if sys.argv[2:] == ["-d"]:
        return start_daemon()
    return send(sys.stdin.read())


if __name__ == "__main__":
    sys.exit(main())
