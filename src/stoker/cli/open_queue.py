"""Resources of a command, which `main` closes when the command ends."""

from __future__ import annotations

from collections.abc import Callable

from stoker.client.queue import Queue

_closers: list[Callable[[], None]] = []


def open_queue() -> Queue:
    """Open the queue of this user; it is closed at the end of the command."""
    queue = Queue()
    at_end(queue.close)
    return queue


def at_end(close: Callable[[], None]) -> None:
    """Register a function to call when the command ends, also after an error."""
    _closers.append(close)


def close_all() -> None:
    """Call the registered functions, the last one first."""
    while _closers:
        _closers.pop()()
