"""Wait for any of several GPUs, by polling.

`lease.Waiter` waits for given GPUs. A process that can use any of several GPUs cannot block in one
lock. `AnyGpuLease` tries all of them whenever its owner calls `try_take`, and holds the gates that
it got, so that later processes cannot overtake it. It opens each file only once, so a call makes
two system calls per GPU and does not wake processes that watch the files with inotify.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence

from stoker.engine.devices.leases.holders import DeviceClaim, place, sign
from stoker.engine.devices.leases.lease import Lease
from stoker.engine.devices.leases.lease_files import lease_error, open_or_make, paths_of


class AnyGpuLease:
    """GPUs are identified by the numbers that `claim_of` takes."""

    def __init__(self, claim_of: Callable[[int], DeviceClaim]) -> None:
        self._claim_of = claim_of
        self._claims: dict[int, DeviceClaim] = {}
        self._paths: dict[int, tuple[str, str]] = {}  # the lock file and the gate
        self._files: dict[str, int] = {}
        self._gates: set[int] = set()  # GPUs whose gate this process holds

    def files(self) -> set[str]:
        """Return the files to watch: when another process closes one, call `try_take` again."""
        return set(self._files)

    def try_take(
        self, wanted: Sequence[int], count: int, required: int = 0
    ) -> tuple[Lease, tuple[int, ...]] | None:
        """Lease `count` of the wanted GPUs: the first `required` of them, then any that are free.

        Returns None if there are not enough; call again later. Gates of GPUs that are no longer
        wanted are released. Raises Error.
        """
        for number in wanted:
            if number not in self._claims:
                claim = self._claims[number] = self._claim_of(number)
                self._paths[number] = paths_of(claim.uuid, claim.pci, claim.is_slice)
        try:
            return self._try_take(wanted, count, required)
        except OSError as error:
            raise lease_error(error) from None

    def _try_take(
        self, wanted: Sequence[int], count: int, required: int
    ) -> tuple[Lease, tuple[int, ...]] | None:
        for number in self._gates - set(wanted):
            self._leave(number)
        for number in sorted(wanted, key=lambda n: (self._claims[n].pci, self._claims[n].uuid)):
            # A process that needs several GPUs takes gates only in this order and stops at the
            # first one that is taken, so two processes cannot deadlock. With one GPU, any gate is
            # fine.
            if not self._has_gate(number) and count > 1:
                break
        taken = [number for number in wanted if number in self._gates and self._try_gpu(number)]
        if len(taken) < count or taken[:required] != list(wanted[:required]):
            for number in taken:
                self._unlock(self._paths[number][0])  # safe, because this process holds its gate
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

    def _try_gpu(self, number: int) -> bool:
        return self._try(self._paths[number][0])

    def _try(self, path: str) -> bool:
        """Lock a file without waiting; if it was replaced meanwhile, lock the new one."""
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
        """Release a gate by closing it, because other processes watch for that event."""
        self._gates.discard(number)
        self._close(self._paths[number][1])

    def _close(self, path: str) -> None:
        os.close(self._files.pop(path))

    def close(self) -> None:
        """Release all gates. Leases that `try_take` returned stay valid."""
        self._gates.clear()
        for path in list(self._files):
            self._close(path)
