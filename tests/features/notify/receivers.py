"""Real receivers of notifications on loopback: a web server and a mail server."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from collections.abc import Callable
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any


class _Threaded(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Receiver:
    def __init__(self, handler: type[socketserver.BaseRequestHandler]) -> None:
        self._server = _Threaded(("127.0.0.1", 0), handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class WebServer(_Receiver):
    """Keeps the JSON of each POST. `answer`: the status, and maybe a Location, of the n-th."""

    def __init__(self, answer: Callable[[int], tuple[int, str | None]] | None = None) -> None:
        self.posts: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.release = threading.Event()  # a server that hangs answers after this
        self.hangs = False
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.paths.append(self.path)
                server.headers.append(dict(self.headers.items()))
                server.posts.append(json.loads(body))
                if server.hangs:
                    server.release.wait(60)
                status, location = answer(len(server.posts)) if answer else (200, None)
                self.send_response(status)
                if location is not None:
                    self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        self.release.set()
        super().close()


class MailServer(_Receiver):
    """A small SMTP server without encryption. `refuses`: the code for every recipient."""

    def __init__(self, refuses: int | None = None) -> None:
        self.letters: list[Message] = []
        self.recipients: list[str] = []
        self.logins: list[str] = []
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.reply("220 test")
                while line := self.rfile.readline().decode().strip():
                    verb = line.split()[0].upper()
                    if verb == "EHLO":
                        self.reply("250-test\r\n250 AUTH PLAIN")
                    elif verb == "AUTH":
                        server.logins.append(line)
                        self.reply("235 ok")
                    elif verb == "RCPT":
                        server.recipients.append(line)
                        self.reply(f"{refuses} no" if refuses else "250 ok")
                    elif verb == "DATA":
                        self.reply("354 go")
                        self.read_letter()
                        self.reply("250 ok")
                    elif verb == "QUIT":
                        self.reply("221 bye")
                        return
                    else:
                        self.reply("250 ok")

            def read_letter(self) -> None:
                lines = []
                while (line := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(line)
                server.letters.append(message_from_bytes(b"".join(lines)))

            def reply(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        super().__init__(Handler)


def program(folder: Path, name: str, script: str) -> Path:
    """An executable shell script in `folder`."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
