"""A running `stoker web` in a lab, and a client that sends requests as a browser or a program does.

site = Site(lab)
site.get("/api/overview").json["running"]
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from stoker.web.server_address import ServerAddress, living_place
from tests.command_server import CommandServer
from tests.lab import HANG_SECONDS, Lab, wait_until

JSON = "application/json"
_servers = CommandServer("stoker.cli", "stoker.client", "stoker.web")


class Reply:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error response."""
        return str(self.json["error"]["code"])

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:500]!r}>"


class Site:
    def __init__(self, lab: Lab, *options: str) -> None:
        self.lab = lab
        self.options = options
        self.start()

    # -- the process ---------------------------------------------------------------------------

    def start(self) -> None:
        if not (self.lab.forks and self._fork()):
            self.lab.ok("web", *self.options)
        place = living_place(str(self.lab.state_dir))
        assert place is not None
        self.place: ServerAddress = place
        with open(place.token_file, encoding="ascii") as file:
            self.token = file.read().strip()

    def _fork(self) -> bool:
        """Start the server without the import of its packages; False if it needs a new Python."""
        words = ("web", "--foreground", *self.options)
        with open(os.devnull, "r+b") as null:
            streams = (null.fileno(), null.fileno(), null.fileno())
            fork = _servers.start(words, self.lab.env, self.lab.folder, streams)
        if fork is None:
            return False
        self.lab.forked.append(fork)
        wait_until(lambda: living_place(str(self.lab.state_dir)) or fork.has_ended())
        return True

    def kill(self) -> None:
        os.kill(self.place.pid, signal.SIGKILL)
        wait_until(lambda: living_place(str(self.lab.state_dir)) is None)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.place.port}"

    # -- requests ------------------------------------------------------------------------------

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = "",
    ) -> Reply:
        """Send a request, with the right token unless another one or None is given."""
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {token or self.token}")
        with closing(http.client.HTTPConnection("127.0.0.1", self.place.port)) as connection:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path: str, content: object, method: str = "POST") -> Reply:
        return self.ask(method, path, json.dumps(content).encode(), {"Content-Type": JSON})

    def ok(self, path: str) -> Any:
        reply = self.get(path)
        assert reply.status == 200, reply
        return reply.json

    def overview(self) -> Any:
        return self.ok("/api/overview")

    def submit(self, command: str, **options: object) -> int:
        reply = self.post("/api/jobs", {"command": command, "cwd": str(self.lab.folder), **options})
        assert reply.status == 201, reply
        return int(reply.json["jobs"][0])

    def login(self) -> str:
        """Log in; returns the cookie as a browser would send it back."""
        body = json.dumps({"token": self.token}).encode()
        reply = self.ask("POST", "/api/login", body, {"Content-Type": JSON}, token=None)
        assert reply.status == 204, reply
        return reply.headers["set-cookie"].partition(";")[0]

    # -- streams -------------------------------------------------------------------------------

    @contextmanager
    def stream(
        self,
        after: int | None = None,
        receive_bytes: int | None = None,
        cookie: str | None = None,
    ) -> Iterator[Events]:
        raw = socket.socket()
        raw.settimeout(HANG_SECONDS)
        if receive_bytes is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        raw.connect(("127.0.0.1", self.place.port))
        with closing(raw):
            last_event = "" if after is None else f"Last-Event-ID: {after}\r\n"
            credential = (
                f"Authorization: Bearer {self.token}" if cookie is None else f"Cookie: {cookie}"
            )
            head = f"GET /api/events HTTP/1.1\r\nHost: {self.host}\r\n"
            raw.sendall(f"{head}{last_event}{credential}\r\n\r\n".encode())
            events = Events(raw)
            try:
                yield events
            finally:
                events.close()


class Events:
    """Reads server-sent events from a socket."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw = raw
        self._file = raw.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(":")
            self.headers[name.lower()] = value.strip()

    def close(self) -> None:
        self._file.close()

    def next(self) -> tuple[str, Any]:
        """(kind, data) of the next event; raises EOFError at the end of the stream."""
        kind, data = "", b""
        while True:
            line = self._line()
            if line.startswith(b"event:"):
                kind = line[6:].strip().decode()
            elif line.startswith(b"data:"):
                data = line[5:].strip()
            elif not line and kind:
                return kind, json.loads(data)

    def until(self, condition: Any) -> list[dict[str, Any]]:
        """All changes up to the first that fulfils the condition."""
        found: list[dict[str, Any]] = []
        while not found or not condition(found[-1]):
            kind, data = self.next()
            assert kind == "change", (kind, data)
            found.append(data)
        return found

    def _line(self) -> bytes:
        """A line of the stream; each event is one HTTP chunk. Returns b":" for framing lines."""
        line = self._file.readline()
        if not line:
            raise EOFError
        if line.endswith(b"\r\n"):  # the length of a chunk, or the end of one
            if line == b"0\r\n":
                raise EOFError
            return b":"
        return line.rstrip(b"\n")


def changed_job(id: int, state: str) -> Any:
    """A condition for `until`: the job changed to this state."""
    return lambda data: any(job["id"] == id and job["state"] == state for job in data["jobs"])
