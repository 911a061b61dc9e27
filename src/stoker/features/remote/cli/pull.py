"""Files from a box: `stoker --host BOX pull`, also across lost connections, and exports (`-o`)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from io import BufferedReader
from typing import cast

from stoker.cli.output import print_json
from stoker.errors import UsageError
from stoker.features.artifacts.verbs.pull import report, target_folder
from stoker.features.remote.boxes import Box
from stoker.features.remote.cli.forward import lost
from stoker.features.remote.cli.recover import note_versions, recover
from stoker.features.remote.connection import Connection, Lost, RemoteProcess
from stoker.features.remote.pull_stream import Saved, present, save
from stoker.text.command_line import Parsed


def remote_pull(box: Box, parsed: Parsed) -> int:
    """Copy the files of jobs. Returns the exit code; raises Unavailable, TryLater."""
    connection = Connection(box)
    folder = target_folder(parsed)
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


# `stoker --host BOX results -o FILE`, `plot -o FILE`, `report -o FILE`: the file is made here.


def remote_output_file(box: Box, name: str, words: list[str], parsed: Parsed) -> int:
    """Write what a command exports into a file here. Returns the exit code.

    Raises UsageError if the file cannot be written, and Unavailable.
    """
    path = parsed["output"] if parsed["parquet"] is None else parsed["parquet"]
    if name == "report":
        from stoker.features.results.report_command import may_write

        if not may_write([path], parsed):
            return 1
    connection = Connection(box)
    folder, base = os.path.split(os.path.abspath(path))
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{base}.")
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
    with open(descriptor, "r+b") as file:
        try:
            code = _receive_file(connection, name, words, file.fileno())
            if code == 0:
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, path)
        except OSError as error:
            raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        if code != 0:
            if parsed["json"]:  # the error, as JSON
                file.seek(0)
                print(file.read().decode("utf-8", "replace"), end="")
            return code
    if parsed["json"]:
        print_json(file=path)
    return 0


def _receive_file(connection: Connection, name: str, words: list[str], output: int) -> int:
    process = connection.start(["box", name, "{}", *words], hangs_up=True, stdout=output)
    try:
        code = process.wait()
    except Lost as error:
        raise lost(connection.box, name, error, is_read=True) from None
    if code == UsageError.exit_code:
        note_versions(connection)
    return code


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
