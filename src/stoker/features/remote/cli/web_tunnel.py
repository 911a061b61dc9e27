"""`stoker --host BOX web`: the web UI of a box in the browser of this machine.

The server runs on the box for as long as this command runs, on a loopback port. The ssh connection
forwards a loopback port of this machine to it; nothing else can reach it.
"""

from __future__ import annotations

import json
import socket
import subprocess
from typing import Any

from stoker.cli.output import notice, print_json
from stoker.errors import Conflict, UsageError
from stoker.features.remote.boxes import Box
from stoker.features.remote.cli.recover import note_versions, recover
from stoker.features.remote.connection import Connection, Lost
from stoker.text.command_line import Parsed

_DEFAULT_PORT = 8899
_ADDRESS = "127.0.0.1"


def web_tunnel(box: Box, words: list[str], parsed: Parsed) -> int:
    """Serve until Ctrl-C. Returns the exit code; raises Unavailable, UsageError, Conflict."""
    if parsed["host"] is not None:
        raise UsageError(
            "`stoker web --host` cannot be combined with `stoker --host`",
            "through ssh, the web UI listens on a loopback address of this machine",
        )
    connection = Connection(box)
    connection.open()
    port = _free_port(parsed["port"])
    is_shown = False
    try:
        while True:
            try:
                return _serve(connection, words, parsed, port, is_shown=is_shown)
            except Lost as error:
                recover(connection, error)
                is_shown = True
    except KeyboardInterrupt:
        return 0


def _serve(
    connection: Connection, words: list[str], parsed: Parsed, port: int, *, is_shown: bool
) -> int:
    process = connection.start(
        ["box", "web", json.dumps({"port": port}), *words], hangs_up=True, stdout=subprocess.PIPE
    )
    forward: str | None = None
    try:
        assert process.process.stdout is not None
        line = process.process.stdout.readline()
        if line.startswith(b'{"port"'):
            server = json.loads(line)
            forward = f"{_ADDRESS}:{port}:{_ADDRESS}:{server['port']}"
            if not connection.control("forward", "-L", forward):
                forward = None
                if not connection.is_open():
                    raise Lost
                raise Conflict(
                    f"ssh cannot listen on port {port} of this machine", "choose another: --port N"
                )
            if not is_shown:
                _show(port, server, parsed)
        elif line:
            print(line.decode("utf-8", "replace"), end="")  # an error, as JSON
        code = process.wait()
        if code == UsageError.exit_code:
            note_versions(connection)
        return code
    finally:
        if forward is not None and connection.is_open():
            connection.control("cancel", "-L", forward)
        process.end()


def _show(port: int, server: dict[str, Any], parsed: Parsed) -> None:
    address = f"http://{_ADDRESS}:{port}/"
    link = f"{address}#token={server['token']}"
    if parsed["json"]:
        print_json(running=True, link=link, port=port)
    else:
        print(link, flush=True)
        notice("press Ctrl-C to stop it; jobs continue")
    if parsed["open"]:
        import webbrowser

        # Other users can read the arguments of the browser: pass a ticket, not the token.
        if not webbrowser.open(f"{address}#token={server['ticket']}"):
            notice("could not open a browser; use the link")


def _free_port(wanted: int | None) -> int:
    """The port for the browser. Raises Conflict if the wanted one is in use."""
    for port in (_DEFAULT_PORT, 0) if wanted is None else (wanted,):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((_ADDRESS, port))
            except (OSError, OverflowError):
                continue
            return int(sock.getsockname()[1])
    raise Conflict(f"port {wanted} of this machine is in use", "choose another: --port N")
