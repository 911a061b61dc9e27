"""`stoker --host BOX results -o FILE`, `plot -o FILE`, `report -o FILE`: the file is made here."""

from __future__ import annotations

import os
import tempfile

from stoker.cli.output import print_json
from stoker.errors import UsageError
from stoker.features.remote.boxes import Box
from stoker.features.remote.cli.forward import lost
from stoker.features.remote.cli.versions import note_versions
from stoker.features.remote.connection import Connection, Lost
from stoker.text.command_line import Parsed


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
            code = _receive(connection, name, words, file.fileno())
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


def _receive(connection: Connection, name: str, words: list[str], output: int) -> int:
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
