"""epoll for descriptors that come and go.

A closed descriptor leaves epoll by itself, and its number may at once belong to another one; so
what is registered is never remembered by number alone, but asked for anew before each wait.
"""

from __future__ import annotations

import select


class EventPoll:
    def __init__(self) -> None:
        self._poll = select.epoll()
        self._known: set[int] = set()

    def to(self, wanted: set[int], writing: int | None = None) -> None:
        """Listen to these and nothing else; `writing` is one that has something to say as well."""
        for descriptor in self._known - wanted:
            try:
                self._poll.unregister(descriptor)
            except OSError:
                pass  # closed, and thereby gone
        for descriptor in wanted:
            events = select.EPOLLIN | (select.EPOLLOUT if descriptor == writing else 0)
            try:
                self._poll.modify(descriptor, events)
            except FileNotFoundError:
                self._poll.register(descriptor, events)
        self._known = wanted

    def wait(self, seconds: float) -> list[int]:
        """The descriptors that have something; negative seconds wait for ever."""
        return [descriptor for descriptor, _ in self._poll.poll(seconds)]
