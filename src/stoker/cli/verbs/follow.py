"""`stoker log -f`: wait for the start of a job, print its output, return when the job ends.

Does not poll: inotify reports that the file has grown, the daemon that the job has changed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Protocol

from stoker.cli.open_queue import at_end
from stoker.cli.output import notice, print_json
from stoker.cli.verbs.log import Printer, encode
from stoker.client.live.change_feed import ChangeFeed
from stoker.client.live.file_watch import drain, watch_file
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.errors import NotFound
from stoker.record import Record
from stoker.states import FINAL
from stoker.text.command_line import Parsed
from stoker.text.terminal import cut


class LogPosition(Record):
    """Up to where a log was read. Attempt 0: nothing was read yet."""

    attempt: int = 0
    offset: int = 0


class JobEnd(Record):
    """How a job ended, as `log -f` reports it."""

    state: str
    words: str
    exit_code: int | None
    signal: int | None


class FollowSink(Protocol):
    """What receives the output of a job: the terminal, or the connection to another machine."""

    def waiting(self, state: str) -> None:
        """The job has no output yet."""

    def write(self, position: LogPosition, block: bytes) -> None:
        """Take the bytes at this position of the log."""

    def update(self) -> None:
        """Called whenever `wait_seconds` have passed."""

    def wait_seconds(self) -> float | None:
        """How long `update` can wait; None: until there is output."""

    def finish(self, end: JobEnd) -> None:
        """The job has ended, and all its output was written."""


class PrintingSink:
    """Prints the output of a job on stdout."""

    def __init__(self, job: int, parsed: Parsed) -> None:
        from stoker.cli.verbs.log import JsonPrinter

        self._job = job
        self._program = parsed["program"] or "stoker"
        self._is_json = bool(parsed["json"])
        self._is_raw = bool(parsed["raw"]) and not self._is_json
        self._live = LivePrinter()
        self._printer = JsonPrinter(job) if self._is_json else self._live

    def waiting(self, state: str) -> None:
        why = f"{self._program} why {self._job}"
        notice(f"job {self._job} is {state}; waiting for it to start (see `{why}`)")

    def write(self, position: LogPosition, block: bytes) -> None:
        if self._is_raw:
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
        else:
            self._printer.feed(block)

    def update(self) -> None:
        self._live.update()

    def wait_seconds(self) -> float | None:
        return self._live.wait_seconds()

    def finish(self, end: JobEnd) -> None:
        self._printer.finish()
        if self._is_json:
            print_json(job=self._job, state=end.state, exit_code=end.exit_code, signal=end.signal)
        else:
            notice(f"job {self._job} {end.state}" + (f": {end.words}" if end.words else ""))

    def interrupt(self) -> None:
        """The user does not want to see more."""
        self._printer.finish()
        notice(f"\njob {self._job} keeps running; to end it: {self._program} cancel {self._job}")


def follow(
    queue: Queue,
    job: int,
    parsed: Parsed,
    path_of: Callable[[JobRow], str | None],
    tail_start: Callable[[int, int], int],
) -> int:
    """Print the output of a job until it ends. `tail_start`: the offset of the last N lines."""
    sink = PrintingSink(job, parsed)
    try:
        stream_output(queue, job, path_of, sink, lines=parsed["lines"], tail_start=tail_start)
    except KeyboardInterrupt:
        sink.interrupt()
    return 0


def stream_output(
    queue: Queue,
    job: int,
    path_of: Callable[[JobRow], str | None],
    sink: FollowSink,
    *,
    lines: int | None,
    tail_start: Callable[[int, int], int],
    start: LogPosition | None = None,
) -> None:
    """Give the output of a job to a sink until the job ends.

    Begins with the last `lines` lines of the newest attempt, or at `start`, where an earlier call
    was interrupted. Raises NotFound if a log cannot be read.
    """
    changes = ChangeFeed(queue.settings.state_dir)
    at_end(changes.close)
    log = _OpenLog(sink)
    start = start or LogPosition()
    is_first, announced = True, False
    while True:
        row = job_queries.job(queue.db, job)
        is_final = row.state in FINAL  # before reading, so that no output is missed
        while log.attempt < row.attempts:
            number = log.attempt + 1 if log.attempt else start.attempt or row.attempts
            path = path_of(row._replace(attempts=number))
            if path is None or not log.open(path, number, is_newest=number == row.attempts):
                break
            if number == start.attempt:
                log.offset = start.offset
            elif is_first and lines is not None:
                log.offset = tail_start(log.descriptor, lines)
            is_first = False
        if not log.attempt and not announced and not is_final:
            announced = True
            sink.waiting(row.state)
        log.read()
        if is_final:
            break
        changes.wait(sink.wait_seconds(), log.watch)
        drain(log.watch)
        sink.update()
    sink.finish(
        JobEnd(
            row.state,
            views.result_words(row, queue.db),
            views.exit_code(row),
            views.signal_number(row),
        )
    )


class _OpenLog:
    """The log of one attempt after another."""

    def __init__(self, sink: FollowSink) -> None:
        self._sink = sink
        self._path: str | None = None
        self.descriptor = -1
        self.watch: int | None = None
        self.attempt = 0
        self.offset = 0

    def open(self, path: str, attempt: int, *, is_newest: bool) -> bool:
        """Go on to the log of this attempt; False if the attempt has not created it yet."""
        if path == self._path:  # a file of the user, to which every attempt appends
            self.attempt = attempt
            return True
        descriptor = _open(path)
        if descriptor is None and is_newest:
            return False
        self.read()  # what the last attempt wrote before it ended
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self._path, self.attempt, self.offset = path, attempt, 0
        self.descriptor = -1 if descriptor is None else descriptor
        self.watch = None if descriptor is None else watch_file(path, self.watch)
        return True

    def read(self) -> None:
        """Give all new output to the sink."""
        if self.descriptor < 0:
            return
        while block := os.pread(self.descriptor, 1 << 16, self.offset):
            self._sink.write(LogPosition(self.attempt, self.offset), block)
            self.offset += len(block)


def _open(path: str) -> int | None:
    try:
        return open_for_reading(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotFound(f"cannot read the log `{path}`: {error.strerror}") from None


# Print a log while it grows (`stoker log -f`), including lines that are not finished yet.
#
# On a terminal, unfinished lines such as progress bars are redrawn below the finished ones. In a
# pipe, text that is only appended is printed at once, and a rewritten line is printed again every
# few seconds.

_UPDATE_SECONDS = 5.0  # between two versions of a rewritten line in a pipe


class LivePrinter(Printer):
    """A `Printer` that also shows unfinished lines."""

    def __init__(self) -> None:
        super().__init__()
        self._is_terminal = sys.stdout.isatty()
        self._drawn = 0  # unfinished lines on the terminal
        self._open = ""  # printed part of the unfinished line
        self._versions: list[str] = []  # rewritten lines as last printed
        self._update_at = 0.0
        self._has_update = False

    def feed(self, block: bytes) -> None:
        super().feed(block)
        self.update()

    def finish(self) -> None:
        self._erase()
        super().finish()
        if self._open:
            self._put("\n")

    def wait_seconds(self) -> float | None:
        """Seconds until a pending version is due; None if `update` has nothing to print."""
        return max(0.0, self._update_at - time.monotonic()) if self._has_update else None

    def update(self) -> None:
        """Show the unfinished lines."""
        rows = self._view.current()
        if self._is_terminal:
            self._draw(rows)
        elif self._view.is_rewritten:
            self._has_update = rows != self._versions
            if self._has_update and time.monotonic() >= self._update_at:
                self._print_versions(rows)
        elif len(rows) == 1 and rows[0].startswith(self._open):
            self._put(rows[0][len(self._open) :])
            self._open = rows[0]

    def _print_versions(self, rows: list[str]) -> None:
        text = "".join(f"{row}\n" for row in rows if row not in self._versions)
        self._put(f"\n{text}" if self._open else text)
        self._open, self._versions, self._has_update = "", rows, False
        self._update_at = time.monotonic() + _UPDATE_SECONDS

    def _draw(self, rows: list[str]) -> None:
        columns, height = shutil.get_terminal_size()
        shown = [cut(row.expandtabs(), columns - 1) for row in rows[-max(1, height - 1) :]]
        self._erase()
        self._put("\n".join(shown))
        self._drawn = len(shown)

    def _erase(self) -> None:
        if self._drawn:
            up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
            self._put(f"\r{up}\x1b[J")
            self._drawn = 0

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        self._erase()
        if self._open:
            is_longer = lines[0].startswith(self._open)
            lines = [lines[0][len(self._open) :], *lines[1:]] if is_longer else ["", *lines]
            self._open = ""
        elif lines[0] in self._versions:  # already printed as its last version
            lines = lines[1:]
        self._versions, self._has_update, self._update_at = [], False, 0.0
        super()._write(lines)

    def _put(self, text: str) -> None:
        if text:
            sys.stdout.buffer.write(encode(text))
            sys.stdout.buffer.flush()


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
