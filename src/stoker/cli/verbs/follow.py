"""`stoker log -f`: wait for the start of a job, print its output, return when the job ends.

Does not poll: inotify reports that the file has grown, the daemon that the job has changed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from stoker.cli.open_queue import at_end
from stoker.cli.output import notice, print_json
from stoker.client import views
from stoker.client.change_feed import ChangeFeed
from stoker.client.queue import Queue
from stoker.core.formats.command_line import Parsed
from stoker.core.states import FINAL
from stoker.errors import NotFound
from stoker.store import job_queries
from stoker.store.job_queries import JobRow
from stoker.supervisor.regular_files import open_for_reading

_IN_MODIFY = 2
_IN_NONBLOCK = 0o4000
_IN_CLOEXEC = 0o2000000


def follow(
    queue: Queue,
    job: int,
    parsed: Parsed,
    path_of: Callable[[JobRow], str | None],
    tail_start: Callable[[int, int], int],
) -> int:
    """Print the output of a job until it ends. `tail_start`: the offset of the last N lines."""
    from stoker.cli.live_printer import LivePrinter
    from stoker.cli.verbs.log import JsonPrinter

    changes = ChangeFeed(queue.settings.state_dir)
    at_end(changes.close)
    descriptor = watch = None
    position, opened = 0, 0
    live = LivePrinter()
    printer = JsonPrinter(job) if parsed["json"] else live
    announced = False
    try:
        while True:
            row = job_queries.job(queue.db, job)
            is_final = row.state in FINAL  # before reading, so that no output is missed
            path = path_of(row)
            if path is not None and opened != row.attempts:
                if descriptor is not None:
                    os.close(descriptor)
                descriptor = _open(path)
                if descriptor is not None:
                    watch = _watch(path)
                    wanted = parsed["lines"]
                    position = 0 if wanted is None else tail_start(descriptor, wanted)
                    opened = row.attempts
            if descriptor is None and not announced and not is_final:
                announced = True
                notice(
                    f"job {job} is {row.state}; waiting for it to start (see `stoker why {job}`)"
                )
            if descriptor is not None:
                position = _copy(descriptor, position, parsed, printer)
            if is_final:
                break
            changes.wait(live.wait_seconds(), watch)
            _drain(watch)
            live.update()
    except KeyboardInterrupt:
        printer.finish()
        notice(f"\njob {job} keeps running; to end it: stoker cancel {job}")
        return 0
    printer.finish()
    words = views.result_words(row, queue.db)
    if parsed["json"]:
        print_json(job=job, state=row.state, exit_code=views.exit_code(row),
                   signal=views.signal_number(row))  # fmt: skip
    else:
        notice(f"job {job} {row.state}" + (f": {words}" if words else ""))
    return 0


def _open(path: str) -> int | None:
    try:
        return open_for_reading(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotFound(f"cannot read the log `{path}`: {error.strerror}") from None


def _copy(descriptor: int, position: int, parsed: Parsed, printer) -> int:  # type: ignore[no-untyped-def]
    while block := os.pread(descriptor, 1 << 16, position):
        position += len(block)
        if parsed["raw"] and not parsed["json"]:
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
        else:
            printer.feed(block)
    return position


def _watch(path: str) -> int | None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))
    if descriptor < 0:
        return None
    libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY)
    return descriptor


def _drain(watch: int | None) -> None:
    if watch is None:
        return
    try:
        os.read(watch, 1 << 16)
    except BlockingIOError:
        pass
