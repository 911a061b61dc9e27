"""python -m stoker.web.tensorboard_process PARENT: a TensorBoard that only its owner can use.

TensorBoard has no login, and every user of the host can connect to a loopback port. Here, a
connection is closed at once unless its other end belongs to the user of this process (or root), as
in `stoker web`, and all addresses begin with a secret. The folder and the secret come as JSON on
stdin, since other users can read command lines; the port is printed. The process ends with its
parent, and after half an hour without a request.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module
from typing import Any

from stoker.http.peers import own_uids, peer_uid, scan_uid
from stoker.supervisor.parent_death import die_with_parent

_IDLE_SECONDS = 1800.0
_last_request = [0.0]


def main(parent: int) -> None:
    die_with_parent(parent)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # imports may print something
    given = json.loads(sys.stdin.readline())
    server: Any = import_module("werkzeug.serving").BaseWSGIServer
    server.verify_request = _is_own_connection
    board: Any = import_module("tensorboard.program").TensorBoard(
        import_module("tensorboard.default").get_plugins()
    )
    board.configure(
        argv=(
            "tensorboard",
            "--logdir",
            given["folder"],
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--path_prefix",
            f"/{given['secret']}",
            # The fast loader listens on a port of its own, which would not be protected.
            "--load_fast",
            "false",
        )
    )
    port = int(board.launch().split(":")[2].partition("/")[0])
    print(json.dumps({"port": port}), file=answer, flush=True)
    _last_request[0] = time.monotonic()
    threading.Thread(target=sys.stdin.read, daemon=True).start()
    while time.monotonic() < _last_request[0] + _IDLE_SECONDS:
        time.sleep(5)


def _is_own_connection(server: object, connection: Any, client: tuple[Any, ...]) -> bool:
    """Called by the server for each new connection, before it reads anything."""
    ends = (str(client[0]), int(client[1])), connection.getsockname()[:2]
    uid = peer_uid(*ends)
    if uid is None:
        uid = scan_uid(*ends)
    _last_request[0] = time.monotonic()
    return uid in own_uids()


if __name__ == "__main__":
    main(int(sys.argv[1]))
