"""epoll for descriptors that come and go.

The kernel drops a closed descriptor from epoll, and its number may be reused at once. Therefore all
descriptors are registered again before each wait.
"""

from __future__ import annotations

import select


class EventPoll:
    def __init__(self) -> None:
        self._poll = select.epoll()
        self._known: set[int] = set()

    def register(self, wanted: set[int], writing: int | None = None) -> None:
        """Wait for these descriptors only, and until `writing` is writable."""
        for descriptor in self._known - wanted:
            try:
                self._poll.unregister(descriptor)
            except OSError:
                pass  # closed, so the kernel has removed it
        for descriptor in wanted:
            events = select.EPOLLIN | (select.EPOLLOUT if descriptor == writing else 0)
            try:
                self._poll.modify(descriptor, events)
            except FileNotFoundError:
                self._poll.register(descriptor, events)
        self._known = wanted

    def wait(self, seconds: float) -> list[int]:
        """The descriptors that are ready; negative seconds wait without a limit."""
        return [descriptor for descriptor, _ in self._poll.poll(seconds)]
