"""Stand at the gates of many cards at once, for whichever comes free.

`leases.Waiter` waits for certain cards. Who would take any of them cannot wait in one lock; a
`Stand` tries them all whenever its owner looks, and keeps the gates it gets in the meantime, so
that nobody who comes later passes. It opens each file once and closes it at the end: a look is two
system calls a card, and makes no noise for those who watch the files for news.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence

from stoker.devices.leases.holders import DeviceClaim, place, sign
from stoker.devices.leases.lease import Lease
from stoker.devices.leases.lease_files import explained, open_or_make, paths_of


class AnyOf:
    """Cards are known by the numbers that their claims are asked for with."""

    def __init__(self, claim_of: Callable[[int], DeviceClaim]) -> None:
        self._claim_of = claim_of
        self._claims: dict[int, DeviceClaim] = {}
        self._paths: dict[int, tuple[str, str]] = {}  # the lock file and the gate
        self._files: dict[str, int] = {}
        self._gates: set[int] = set()  # those whose gate is ours

    def files(self) -> set[str]:
        """What to watch: when somebody closes one of these, look again."""
        return set(self._files)

    def look(
        self, wanted: Sequence[int], count: int, must: int = 0
    ) -> tuple[Lease, tuple[int, ...]] | None:
        """`count` of the wanted cards: the first `must` of them, and then those that are free.

        None when there are not that many; it can be tried again. Cards that are not wanted any more
        are left to others.
        """
        for number in wanted:
            if number not in self._claims:
                claim = self._claims[number] = self._claim_of(number)
                self._paths[number] = paths_of(claim.uuid, claim.pci, claim.is_slice)
        try:
            return self._look(wanted, count, must)
        except OSError as error:
            raise explained(error) from None

    def _look(
        self, wanted: Sequence[int], count: int, must: int
    ) -> tuple[Lease, tuple[int, ...]] | None:
        for number in self._gates - set(wanted):
            self._leave(number)
        for number in sorted(wanted, key=lambda n: (self._claims[n].pci, self._claims[n].uuid)):
            # Who needs several holds no gate behind one that another has: all take them in this
            # order, so two can never wait for each other. Who needs one goes on to the next.
            if not self._has_gate(number) and count > 1:
                break
        taken = [number for number in wanted if number in self._gates and self._try_card(number)]
        if len(taken) < count or taken[:must] != list(wanted[:must]):
            for number in taken:
                self._unlock(self._paths[number][0])  # nobody can take it: its gate is ours
            return None
        chosen = tuple(taken[:count])
        lease = Lease([self._files.pop(self._paths[number][0]) for number in chosen])
        for number, descriptor in zip(chosen, lease.descriptors, strict=True):
            place(descriptor, self._claims[number], 0, os.getpid())
        self.close()
        return lease, chosen

    def _has_gate(self, number: int) -> bool:
        if number not in self._gates and self._try(self._paths[number][1]):
            sign(self._files[self._paths[number][1]], 0, None, os.getpid())
            self._gates.add(number)
        return number in self._gates

    def _try_card(self, number: int) -> bool:
        return self._try(self._paths[number][0])

    def _try(self, path: str) -> bool:
        """Lock a file without waiting; not one that was replaced meanwhile."""
        while True:
            descriptor = self._files.get(path)
            if descriptor is None:
                descriptor = self._files[path] = open_or_make(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            try:
                if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                    return True
            except FileNotFoundError:
                pass
            self._close(path)

    def _unlock(self, path: str) -> None:
        fcntl.flock(self._files[path], fcntl.LOCK_UN)

    def _leave(self, number: int) -> None:
        """Closed, not unlocked: that is what others watch for."""
        self._gates.discard(number)
        self._close(self._paths[number][1])

    def _close(self, path: str) -> None:
        os.close(self._files.pop(path))

    def close(self) -> None:
        """Leave all gates; cards that were handed out stay with whoever has them."""
        self._gates.clear()
        for path in list(self._files):
            self._close(path)
