"""`stoker --host BOX log -f`: print the output of a job here, across lost connections.

The box sends the bytes of the log with their positions. After a lost connection, the next one
continues behind the last byte that was received, so that no line is missing or printed twice.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from stoker.cli.verbs.follow import JobEnd, LogPosition, PrintingSink
from stoker.errors import UsageError
from stoker.features.remote.boxes import Box
from stoker.features.remote.cli.recover import note_versions, recover
from stoker.features.remote.connection import Connection, Lost
from stoker.text.command_line import Parsed

_READ = 1 << 16


def remote_follow(box: Box, words: list[str], parsed: Parsed) -> int:
    """Print the output of a job until it ends. Returns the exit code; raises Unavailable."""
    return _Follower(Connection(box), words, parsed).run()


class _Follower:
    def __init__(self, connection: Connection, words: list[str], parsed: Parsed) -> None:
        self._connection = connection
        self._words = words
        self._parsed = parsed
        self._job: int | None = None
        self._sink: PrintingSink | None = None
        self._position = LogPosition()
        self._announced: str | None = None

    def run(self) -> int:
        try:
            while True:
                try:
                    return self._receive()
                except Lost as error:
                    recover(self._connection, error)
        except KeyboardInterrupt:
            if self._sink is None:
                raise
            self._sink.interrupt()
            return 0

    def _receive(self) -> int:
        settings = {"job": self._job, **self._position._asdict()}
        process = self._connection.start(
            ["box", "log", json.dumps(settings), *self._words],
            hangs_up=True,
            stdout=subprocess.PIPE,
        )
        assert process.process.stdout is not None
        try:
            for header, block in _frames(process.process.stdout.fileno(), self._wait):
                self._take(header, block)
            code = process.wait()
        finally:
            process.end()
        if code == UsageError.exit_code and self._job is None:
            note_versions(self._connection)
        return code

    def _wait(self, descriptor: int) -> None:
        """Wait for data, and redraw unfinished lines when they are due."""
        while self._sink is not None:
            seconds = self._sink.wait_seconds()
            if select.select([descriptor], [], [], seconds)[0]:
                return
            self._sink.update()

    def _take(self, header: dict[str, Any], block: bytes) -> None:
        if "error" in header:  # with --json
            print(json.dumps(header))
            return
        if self._sink is None:
            self._job = int(header["job"])
            self._sink = PrintingSink(self._job, self._parsed)
        if "waiting" in header and header["waiting"] != self._announced:
            self._announced = header["waiting"]
            self._sink.waiting(header["waiting"])
        elif "bytes" in header:
            at = LogPosition(header["attempt"], header["offset"])
            self._sink.write(at, block)
            self._position = LogPosition(at.attempt, at.offset + len(block))
        elif "end" in header:
            self._sink.finish(JobEnd(**header["end"]))


def _frames(descriptor: int, wait: Callable[[int], None]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Each header (a line of JSON) with the bytes that follow it; only complete ones."""
    data = b""
    while True:
        wait(descriptor)
        more = os.read(descriptor, _READ)
        if not more:
            return
        data += more
        while (end := data.find(b"\n")) >= 0:
            header = json.loads(data[:end])
            size = end + 1 + header.get("bytes", 0)
            if len(data) < size:
                break
            yield header, data[end + 1 : size]
            data = data[size:]
