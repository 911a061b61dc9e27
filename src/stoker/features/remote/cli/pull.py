"""`stoker --host BOX pull`: copy files of jobs from the box, also across lost connections."""

from __future__ import annotations

import json
import subprocess
from io import BufferedReader
from typing import cast

from stoker.errors import UsageError
from stoker.features.artifacts.verbs.pull import output_folder, report
from stoker.features.remote.boxes import Box
from stoker.features.remote.cli.recover import recover
from stoker.features.remote.cli.versions import note_versions
from stoker.features.remote.connection import Connection, Lost, RemoteProcess
from stoker.features.remote.pull_stream import Saved, present, save
from stoker.text.command_line import Parsed


def remote_pull(box: Box, parsed: Parsed) -> int:
    """Copy the files of jobs. Returns the exit code; raises Unavailable, TryLater."""
    connection = Connection(box)
    folder = output_folder(parsed)
    words = ["--sweep", parsed["sweep"]] if parsed["sweep"] is not None else []
    words += ["--json"] if parsed["json"] else []
    words += ["--", *parsed.words]
    copied: frozenset[str] = frozenset()
    while True:
        process = connection.start(
            ["box", "pull", "{}", *words],
            hangs_up=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        error = Lost()
        try:
            saved = _receive(process, folder, is_json=bool(parsed["json"]))
            copied |= saved.copied
            code = process.wait()
            if code == UsageError.exit_code:
                note_versions(connection)
            if code != 0 or saved.is_complete:
                return code or report(parsed, saved._replace(copied=copied))
        except Lost as lost:
            error = lost
        finally:
            process.end()
        recover(connection, error)


def _receive(process: RemoteProcess, folder: str, *, is_json: bool) -> Saved:
    """Save what the box sends; with --json, an error is printed instead."""
    streams = process.process
    assert streams.stdin is not None and streams.stdout is not None
    stdout = cast(BufferedReader, streams.stdout)
    try:
        streams.stdin.write(json.dumps({"have": present(folder)}).encode())
        streams.stdin.close()
    except BrokenPipeError:
        pass  # the exit code says why
    if is_json and stdout.peek(1)[:1] == b"{":
        print(stdout.read().decode("utf-8", "replace"), end="")
        return Saved(0, frozenset(), is_complete=False)
    return save(stdout, folder)
