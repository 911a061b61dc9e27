"""The output of a job on its way to another machine: blocks of a log, each with its position."""

from __future__ import annotations

import json
import sys

from stoker.cli.verbs.follow import JobEnd, LogPosition


class StreamSink:
    """Writes a line of JSON for each event to stdout; the bytes of a block follow their line."""

    def __init__(self, job: int) -> None:
        self._job = job
        self._put({"job": job})

    def waiting(self, state: str) -> None:
        self._put({"job": self._job, "waiting": state})

    def write(self, position: LogPosition, block: bytes) -> None:
        self._put({"job": self._job, "bytes": len(block), **position._asdict()}, block)

    def update(self) -> None:
        pass

    def wait_seconds(self) -> float | None:
        return None

    def finish(self, end: JobEnd) -> None:
        self._put({"job": self._job, "end": end._asdict()})

    def _put(self, header: dict[str, object], block: bytes = b"") -> None:
        sys.stdout.buffer.write(json.dumps(header).encode() + b"\n" + block)
        sys.stdout.buffer.flush()
