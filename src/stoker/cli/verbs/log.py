"""`stoker log`: the output of a job, as a terminal would show it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from stoker.cli.open_queue import open_queue
from stoker.cli.output import notice, plural, print_json, wants_color
from stoker.client.live.log_text import read_from, read_lines, show_bytes, whole_characters
from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.engine.store import job_queries
from stoker.engine.store.job_queries import JobRow
from stoker.engine.supervisor.empty_logs import had_no_output
from stoker.engine.supervisor.logs import log_path
from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.errors import NotFound, UsageError
from stoker.states import FINAL
from stoker.text.byte_text import to_text
from stoker.text.command_line import Option, Parsed, Verb, count
from stoker.text.logs.log_rendering import LogView
from stoker.text.selectors import parse_selector

VERB = Verb(
    "log",
    "log [OPTIONS] [JOB]",
    "Show the output of a job (default: the last submitted one). Progress bars are collapsed, and"
    " escape sequences other than colors are removed.",
    (
        Option("-f --follow", "wait for the job to start, and print its output until it ends"),
        Option("-n --lines", "print only the last N lines", "N", count),
        Option("--raw", "print the log unchanged"),
        Option("--err", "print the file given with `submit --stderr`"),
        Option("--attempt", "show an earlier attempt (the first is 1)", "N", count),
        Option("--path", "print only the path of the log"),
    ),
    (("stoker log -f @", "follow the last job"), ("stoker log 7 -n 20", "")),
    "With --json, --follow prints an object for each line, and one when the job ends.",
    words="jobs",
)
_BLOCK = 1 << 16


def run(parsed: Parsed) -> int:
    queue = open_queue()
    row = job_queries.job(queue.db, _selected(queue, parsed.words))
    if parsed["path"]:
        print(_path(queue, row, parsed) or "")
        return 0
    if parsed["follow"]:
        return _follow(queue, row, parsed)
    path = _path(queue, row, parsed)
    if path is None and parsed["json"]:
        print_json(job=row.id, state=row.state, path=None, lines=[])
        return 0
    if path is None and row.state in FINAL:
        words = views.result_words(row, queue.db)
        notice(f"job {row.id} has no output because it never started: {row.state}, {words}")
        return 0
    if path is None:
        notice(
            f"job {row.id} is {row.state} and has no output yet; to wait: stoker log -f {row.id}"
        )
        return 0
    _print_file(row, path, parsed)
    return 0


def _selected(queue: Queue, words: list[str]) -> int:
    ids = queue.select(words or ["@"])
    if len(ids) > 1 and len(words) == 1 and parse_selector(words[0]).name is not None:
        notice(f"{len(ids)} jobs match `{words[0]}`; this is the newest, job {ids[-1]}")
        return ids[-1]
    if len(ids) != 1:
        raise UsageError(
            f"`stoker log` shows one job, but {len(ids)} are selected", "example: stoker log 7"
        )
    return ids[0]


def stream(parsed: Parsed, settings: dict[str, int]) -> int:
    """`log -f` for another machine: write the log with its positions to stdout.

    `settings`: `job`, and the `attempt` and `offset` that the other machine has reached.
    """
    from stoker.cli.verbs.follow import LogPosition, StreamSink, stream_output

    queue = open_queue()
    job = settings["job"] or _selected(queue, parsed.words)
    start = LogPosition(settings["attempt"], settings["offset"])
    stream_output(
        queue,
        job,
        lambda row: _path(queue, row, parsed),
        StreamSink(job),
        lines=parsed["lines"],
        tail_start=_tail_start,
        start=start,
    )
    return 0


def _print_file(row: JobRow, path: str, parsed: Parsed) -> None:
    try:
        with open(open_for_reading(path), "rb") as file:
            is_empty = not os.fstat(file.fileno()).st_size
            if parsed["json"]:
                lines = _lines(file.fileno(), parsed)
                print_json(job=row.id, state=row.state, path=path, lines=lines)
            else:
                _print(file.fileno(), parsed)
    except FileNotFoundError:
        is_empty = had_no_output(path)
        if row.state in FINAL and not is_empty:
            raise NotFound(f"the log of job {row.id} does not exist any more: {path}") from None
        if parsed["json"]:
            print_json(job=row.id, state=row.state, path=path, lines=[])
    except OSError as error:
        if path == os.devnull:
            raise NotFound(f"the output of job {row.id} was sent to {path}") from None
        raise NotFound(f"cannot read the log of job {row.id}: {error.strerror}") from None
    if is_empty and row.state in FINAL and not parsed["json"]:
        notice(f"job {row.id} printed nothing")


def _path(queue: Queue, row: JobRow, parsed: Parsed) -> str | None:
    out, err = views.log_paths(queue.settings, row)
    if parsed["err"] and err:
        return err
    if parsed["attempt"] and not row.stdout:
        if parsed["attempt"] > row.attempts:
            raise NotFound(f"job {row.id} has only {plural(row.attempts, 'attempt')}")
        folder = row.files_dir or queue.settings.state_dir
        return log_path(folder, row.id, parsed["attempt"])
    return out


def _print(descriptor: int, parsed: Parsed) -> None:
    start = 0 if parsed["lines"] is None else _tail_start(descriptor, parsed["lines"])
    _show(read_from(descriptor, start), parsed)


def _lines(descriptor: int, parsed: Parsed) -> list[str]:
    """The lines that `_print` shows."""
    start = 0 if parsed["lines"] is None else _tail_start(descriptor, parsed["lines"])
    return read_lines(read_from(descriptor, start))


def _show(blocks: Iterator[bytes], parsed: Parsed) -> None:
    if parsed["raw"]:
        for block in blocks:
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        return
    printer = Printer(live=False)
    for block in blocks:
        printer.feed(block)
    printer.finish()


class Printer:
    """Prints raw log bytes as lines that are safe for a terminal. `live`: without buffering."""

    def __init__(self, live: bool = True) -> None:
        self._view = LogView(wants_color(), live)
        self._rest = b""
        self._color = wants_color()

    def feed(self, block: bytes) -> None:
        data = self._rest + block
        cut = whole_characters(data)
        self._rest = data[cut:]
        self._write(self._view.feed(to_text(data[:cut])))

    def finish(self) -> None:
        self._write(self._view.feed(to_text(self._rest)) + self._view.finish())
        self._rest = b""
        if self._color:
            sys.stdout.write("\x1b[0m")
        sys.stdout.flush()

    def _write(self, lines: list[str]) -> None:
        if lines:
            text = "\n".join(lines) + "\n"
            sys.stdout.buffer.write(encode(text))
            sys.stdout.buffer.flush()


class JsonPrinter(Printer):
    """Prints a JSON object for each line."""

    def __init__(self, job: int) -> None:
        super().__init__()
        self._job = job
        self._view, self._color = LogView(False, True), False

    def _write(self, lines: list[str]) -> None:
        for line in lines:
            print_json(job=self._job, line=line)
        sys.stdout.flush()


def encode(text: str) -> bytes:
    """Encode text as UTF-8; show bytes that were not UTF-8 as \\xNN."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return show_bytes(text).encode("utf-8", "backslashreplace")


def _tail_start(descriptor: int, lines: int) -> int:
    """The offset of the last `lines` lines, searched backward from the end."""
    size = os.fstat(descriptor).st_size
    position, seen = size, 0
    if lines == 0:
        return size
    while position > 0:
        begin = max(0, position - _BLOCK)
        block = os.pread(descriptor, position - begin, begin)
        end = len(block)
        while (found := block.rfind(b"\n", 0, end)) >= 0:
            if begin + found != size - 1:
                seen += 1
                if seen == lines:
                    return begin + found + 1
            end = found
        position = begin
    return 0


def _follow(queue: Queue, row: JobRow, parsed: Parsed) -> int:
    from stoker.cli.verbs.follow import follow

    return follow(queue, row.id, parsed, lambda current: _path(queue, current, parsed), _tail_start)
