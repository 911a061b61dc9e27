"""A lab with a real `gpupeasy server` and `gpupeasy gui` on free ports, used over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.lab import Lab, wait_until


class Reply:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.text = body.decode()

    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def location(self) -> str:
        return urlsplit(self.headers["Location"]).path

    @property
    def messages(self) -> Any:
        """The messages in the target of a redirect."""
        return json.loads(parse_qs(urlsplit(self.headers["Location"]).query)["messages"][0])


def send_request(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request(method, path, body, dict(headers or {}))
        response = connection.getresponse()
        return Reply(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


class PeasyLab(Lab):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.logdir = folder / "log"
        self.state_dir = self.logdir / "queue"  # of the queue and its daemon
        self.work = folder / "work"
        self.work.mkdir()
        self.processes_started: list[subprocess.Popen[str]] = []
        self.port = self.gui_port = 0

    # -- servers -------------------------------------------------------------------------------

    def serve(self, *words: str, gpus: str | None = "0;1;2", **env: str) -> subprocess.Popen[str]:
        """Start a server and wait until it listens."""
        options = [] if gpus is None else ["--gpus", gpus]
        server = self.launch(
            "-m", "gpupeasy", "server", "--port", "0", "--logdir", str(self.logdir),
            *options, *words, **env,
        )  # fmt: skip
        self.port = port_of(server)
        return server

    def show(self) -> subprocess.Popen[str]:
        gui = self.launch(
            "-m", "gpupeasy", "gui", "--port", "0", "--backend-port", str(self.port)
        )  # fmt: skip
        self.gui_port = port_of(gui)
        return gui

    def launch(self, *words: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *words],
            env={**self.env, **env},
            cwd=self.work,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.processes_started.append(process)
        return process

    def close(self) -> None:
        for process in self.processes_started:
            process.kill()
            with process:  # closes its pipes
                pass
        super().close()

    # -- requests ------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        reply = send_request(self.port, "GET", path)
        assert reply.status == 200, reply.text
        return reply.json()

    def post(self, path: str, data: object = None) -> Any:
        headers = {"Content-Type": "application/json"}
        reply = send_request(self.port, "POST", path, json.dumps(data).encode(), headers)
        assert reply.status == 200, reply.text
        return reply.json()

    def page(self, path: str) -> Reply:
        return send_request(self.gui_port, "GET", path)

    def send(self, path: str, **fields: str) -> Reply:
        """Send a form to the web page."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return send_request(self.gui_port, "POST", path, urlencode(fields).encode(), headers)

    # -- jobs ----------------------------------------------------------------------------------

    def add(self, *command: str, name: str = "job", **fields: object) -> int:
        """Submit a job with a new output file; returns its ID."""
        out = self.work / f"out{len(list(self.work.glob('out*')))}.txt"
        job = {"jobName": name, "outFile": str(out), "jobCommand": command, **fields}
        response = self.post("/addnewjob", {"job": job})
        assert response["status"] == "successful", response
        return int(response["jobID"])

    def add_gate(self, name: str = "gate", **fields: object) -> Gate:
        """Submit a job that exits when its gate is opened."""
        path = self.work / f"gate{len(list(self.work.glob('gate*')))}"
        os.mkfifo(path)
        command = ("sh", "-c", 'read code < "$0"; exit "$code"', str(path))
        return Gate(path, self.add(*command, name=name, **fields))

    def value(self, path: str) -> Any:
        return self.get(path)["value"]

    def info(self, id: int) -> Any:
        return self.value(f"/jobinfo/{id}")

    def out(self, id: int) -> str:
        return Path(self.info(id)["outFile"]).read_text()

    def wait_for(self, status: str, *ids: int) -> None:
        for id in ids:
            wait_until(lambda id=id: self._has_status(id, status), what=f"{id} {status}")  # type: ignore[misc]

    def _has_status(self, id: int, status: str) -> bool:
        """Whether the job has the status; a running one must also have its process."""
        if self.info(id)["status"] != status:
            return False
        return status != "Running" or self.value(f"/jobdetails/{id}")["pid"] is not None

    def gpu_of(self, id: int) -> str:
        gpu: str = self.value(f"/jobdetails/{id}")["gpu"]
        return gpu

    def logs(self) -> str:
        return (self.logdir / "logs.out").read_text()


class Gate:
    def __init__(self, path: Path, id: int) -> None:
        self.path = path
        self.id = id

    def open(self, code: int = 0) -> None:
        self.path.write_text(f"{code}\n")


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "http://" in line, line + process.communicate()[0]
    return int(line.split("http://")[1].split("/")[0].rpartition(":")[2])


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Send a signal and wait for the exit; returns the rest of the output."""
    process.send_signal(number)
    return process.communicate()[0]
