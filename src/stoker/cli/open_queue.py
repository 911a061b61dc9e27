"""What a command opened; `main` closes it when the command ends."""

from __future__ import annotations

from collections.abc import Callable

from stoker.client.queue import Queue

_closers: list[Callable[[], None]] = []


def open_queue() -> Queue:
    """The queue of this user, closed at the end of the command."""
    queue = Queue()
    at_end(queue.close)
    return queue


def at_end(close: Callable[[], None]) -> None:
    """Call this when the command ends, however it ends."""
    _closers.append(close)


def close_all() -> None:
    while _closers:
        _closers.pop()()
