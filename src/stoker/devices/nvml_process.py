"""The watcher: asks the driver for everything, in a process that may hang in our place.

python -m stoker.devices.nvml_process --named [--once]

stdin    `n`: sample now, `a`: at the active rate, `i`: at the idle rate; end of file: exit
stdout   samples, one a line (devices/sample_lines.py)

See devices/nvml_client.py for the other side.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable

from stoker.core.gpus.sample import Sample
from stoker.devices.sample_lines import encode, encode_0_1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.devices.nvml import Nvml

_NAMED = "--named"  # a daemon of 0.1 does not say that
ACTIVE_SECONDS = 0.5
IDLE_SECONDS = 5.0
_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 30.0


class Watcher:
    """The driver while it can be used, else the reason why not, and when to try again."""

    def __init__(self, wait: float = _FIRST_WAIT_SECONDS) -> None:
        self.retry_at: float | None = None
        self.needs_reload = False
        self.wait = wait
        self._nvml: Nvml | None = None
        self._trouble: str | None = None

    def chores(self, now: float) -> list[Callable[[], None]]:
        """The slow readings that make the next sample complete."""
        nvml = self._open(now)
        return [] if nvml is None else nvml.chores(now)

    def sample(self) -> Sample:
        now = time.monotonic()
        nvml = self._open(now)
        if nvml is None:
            return Sample(now, None, self._trouble)
        from stoker.devices.nvml import Unusable

        try:
            cards = nvml.cards(now)
        except Unusable as error:
            nvml.close()
            self._nvml = None
            self._wait_after(str(error), error.needs_reload, now)
            return Sample(now, None, self._trouble)
        self.wait = _FIRST_WAIT_SECONDS
        return Sample(now, cards, nvml.note, nvml.xids())

    def _open(self, now: float) -> Nvml | None:
        if self._nvml is not None or (self.retry_at is not None and now < self.retry_at):
            return self._nvml
        try:
            from stoker.devices.nvml import Nvml, Unusable
        except ModuleNotFoundError as error:
            self._wait_after(f"the Python package nvidia-ml-py is missing ({error})", True, now)
            return None
        try:
            self._nvml = Nvml(now)
        except Unusable as error:
            self._wait_after(str(error), error.needs_reload, now)
        else:
            self.retry_at = None
        return self._nvml

    def _wait_after(self, trouble: str, needs_reload: bool, now: float) -> None:
        self._trouble = trouble
        self.needs_reload = needs_reload
        self.retry_at = now + self.wait
        self.wait = min(2 * self.wait, _LONGEST_WAIT_SECONDS)


def watch(watcher: Watcher, active: bool) -> None:
    """Sample in a steady beat until nobody listens. Requests do not shift the beat."""
    due = time.monotonic()
    chores: list[Callable[[], None]] | None = None  # None between two rounds
    while True:
        now = time.monotonic()
        if chores is None and now >= due:
            if watcher.needs_reload and watcher.retry_at is not None and now >= watcher.retry_at:
                _begin_anew(watcher.wait, active)
            chores = watcher.chores(now)
        orders = _hear(max(0.0, due - now) if chores is None else 0.0)
        if orders is None:
            return
        for order in orders.decode("ascii", "replace"):
            active = order == "a" if order in "ai" else active
        beat = ACTIVE_SECONDS if active else IDLE_SECONDS
        due = min(due, now + beat)
        if b"n" in orders:
            _say(watcher.sample())
        if chores:
            chores.pop()()  # one at a time, so that no request waits for them all
        elif chores is not None:
            _say(watcher.sample())
            chores = None
            due = max(due + beat, now)
        if watcher.retry_at is not None:
            due = min(due, watcher.retry_at)


def _hear(timeout: float) -> bytes | None:
    """Orders that came within the time; None when nobody can give any more."""
    if not select.select([0], [], [], timeout)[0]:
        return b""
    return os.read(0, 4096) or None


def _say(sample: Sample) -> None:
    line = encode(sample) if _NAMED in sys.argv else encode_0_1(sample)
    while line:
        line = line[os.write(1, line) :]


def _begin_anew(wait: float, active: bool) -> None:
    """A library once loaded stays the old one, whatever is installed meanwhile."""
    options = [f"--wait={wait}", *(["--active"] if active else [])]
    options += [_NAMED] if _NAMED in sys.argv else []
    os.execv(sys.executable, [sys.executable, "-P", "-m", "stoker.devices.nvml_process", *options])


def main() -> None:
    waits = [float(word[len("--wait=") :]) for word in sys.argv if word.startswith("--wait=")]
    watcher = Watcher(*waits)
    try:
        if "--once" not in sys.argv:
            return watch(watcher, "--active" in sys.argv)
        for chore in watcher.chores(time.monotonic()):
            chore()
        _say(watcher.sample())
    except BrokenPipeError:
        pass  # nobody listens any more


if __name__ == "__main__":
    main()
