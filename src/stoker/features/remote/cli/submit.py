"""`stoker --host BOX submit` and `sweep`: exactly once, also when the connection is lost.

The box stores the ids of the jobs under a token that this call makes up
(engine/store/submit_tokens.py). After a lost connection the call is repeated with the same token,
and reports the same ids. The output of an attempt is printed only when the attempt is complete.
"""

from __future__ import annotations

import json
import os
import secrets
import sys

from stoker.cli.output import notice
from stoker.errors import Unavailable, UsageError
from stoker.features.remote.boxes import Box
from stoker.features.remote.cli.recover import check_support, note_versions, recover
from stoker.features.remote.cli.sync_folder import sync_folder
from stoker.features.remote.connection import Captured, Connection, Lost
from stoker.text.command_line import Parsed


def remote_submit(box: Box, name: str, words: list[str], parsed: Parsed) -> int:
    """Submit jobs or a sweep to a box. Returns the exit code; raises Unavailable, UsageError."""
    _check_words(name, parsed)
    connection = Connection(box)
    data = _stdin() if name == "submit" and _reads_stdin(parsed) else b""
    folder = None
    if parsed["sync"] is not None:
        folder = sync_folder(connection, parsed["sync"], is_quiet=bool(parsed["quiet"]))
    settings = {
        "token": secrets.token_hex(16),
        "bytes": len(data),
        "program": parsed["program"],
    }
    done = _submit_once(connection, ["box", name, json.dumps(settings), *words], folder, data)
    sys.stdout.flush()
    sys.stdout.buffer.write(done.out)
    sys.stdout.buffer.flush()
    sys.stderr.flush()
    sys.stderr.buffer.write(done.err)
    sys.stderr.buffer.flush()
    if done.code == UsageError.exit_code:
        note_versions(connection)
        _note_local_file(box, parsed)
    return done.code


def _check_words(name: str, parsed: Parsed) -> None:
    """Raise UsageError before anything is copied."""
    if not parsed.words and parsed["file"] is None and not parsed["param"]:
        raise UsageError("no command given", f"example: stoker {name} --sync . python train.py")


def _reads_stdin(parsed: Parsed) -> bool:
    if parsed["file"] is not None:
        return bool(parsed["file"] == "-")
    return parsed.words == ["-"] and not parsed.dashed


def _stdin() -> bytes:
    """All of stdin: only a complete job file is sent, so that no line can be cut off."""
    return sys.stdin.buffer.read()


def _submit_once(
    connection: Connection, command: list[str], folder: str | None, data: bytes
) -> Captured:
    while True:
        try:
            done = connection.capture(command, folder=folder, input=data)
            check_support(connection, done)
            return done
        except Lost as error:
            _recover(connection, error)
        except KeyboardInterrupt:
            name = connection.box.name
            notice(f"interrupted; to see whether jobs were queued: stoker --host {name} ls")
            raise


def _recover(connection: Connection, error: Lost) -> None:
    try:
        recover(connection, error)
    except Unavailable as failed:
        name = connection.box.name
        raise Unavailable(
            f"{failed.message}, and it is unknown whether the jobs are queued",
            f"see what is there: stoker --host {name} ls",
        ) from None


def _note_local_file(box: Box, parsed: Parsed) -> None:
    path = parsed["file"]
    if path not in (None, "-") and parsed["sync"] is None and os.path.isfile(path):
        notice(
            f"note: paths are on {box.name}; to send the file of this machine: "
            f"stoker --host {box.name} submit -f - < {path}"
        )
