"""The NVML process: all calls of the driver happen here, because they may hang.

python -m stoker.engine.devices.driver_process --named [--once]

stdin    `n`: sample now, `u`: read utilization and power again, `a`: sample at the active rate,
         `i`: at the idle rate; end of file: exit
stdout   samples, one per line (engine/devices/sample_lines.py)

engine/devices/driver_client.py starts this process and reads its samples.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable

from stoker.engine.devices.sample_lines import encode, encode_0_1
from stoker.engine.gpus.sample import Sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.engine.devices.nvidia import Nvml

_NAMED = "--named"  # fields by name; a daemon of 0.1 does not pass this
ACTIVE_SECONDS = 0.5
IDLE_SECONDS = 5.0
_FIRST_WAIT_SECONDS = 1.0
_MAX_WAIT_SECONDS = 30.0


class Sampler:
    """The driver, or why it cannot be used and when to retry."""

    def __init__(self, wait: float = _FIRST_WAIT_SECONDS) -> None:
        self.retry_at: float | None = None
        self.needs_reload = False
        self.wait = wait
        self._nvml: Nvml | None = None
        self._error: str | None = None

    def slow_readings(self, now: float) -> list[Callable[[], None]]:
        """Return the slow readings that are due before the next sample."""
        nvml = self._open(now)
        return [] if nvml is None else nvml.slow_readings(now)

    def read_load(self, now: float) -> None:
        """Read utilization and power again, unless that was done a moment ago."""
        nvml = self._open(now)
        if nvml is not None:
            nvml.read_load(now)

    def sample(self) -> Sample:
        now = time.monotonic()
        nvml = self._open(now)
        if nvml is None:
            return Sample(now, None, self._error)
        from stoker.engine.devices.nvidia import Unusable

        try:
            gpus = nvml.gpus(now)
        except Unusable as error:
            nvml.close()
            self._nvml = None
            self._wait_after(str(error), error.needs_reload, now)
            return Sample(now, None, self._error)
        self.wait = _FIRST_WAIT_SECONDS
        return Sample(now, gpus, nvml.note, nvml.xids())

    def _open(self, now: float) -> Nvml | None:
        if self._nvml is not None or (self.retry_at is not None and now < self.retry_at):
            return self._nvml
        try:
            from stoker.engine.devices.nvidia import Nvml, Unusable
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

    def _wait_after(self, error: str, needs_reload: bool, now: float) -> None:
        self._error = error
        self.needs_reload = needs_reload
        self.retry_at = now + self.wait
        self.wait = min(2 * self.wait, _MAX_WAIT_SECONDS)


def watch(sampler: Sampler, active: bool) -> None:
    """Sample at a fixed rate until stdin is closed. Requests do not shift the regular samples."""
    due = time.monotonic()
    slow_readings: list[Callable[[], None]] | None = None  # None between two rounds
    while True:
        now = time.monotonic()
        if slow_readings is None and now >= due:
            if sampler.needs_reload and sampler.retry_at is not None and now >= sampler.retry_at:
                _restart(sampler.wait, active)
            slow_readings = sampler.slow_readings(now)
        requests = _read_requests(max(0.0, due - now) if slow_readings is None else 0.0)
        if requests is None:
            return
        for request in requests.decode("ascii", "replace"):
            active = request == "a" if request in "ai" else active
        interval = ACTIVE_SECONDS if active else IDLE_SECONDS
        due = min(due, now + interval)
        if b"u" in requests:
            sampler.read_load(now)
        if b"n" in requests:
            _write(sampler.sample())
        if slow_readings:
            slow_readings.pop()()  # one at a time, so that a request does not wait for all of them
        elif slow_readings is not None:
            _write(sampler.sample())
            slow_readings = None
            due = max(due + interval, now)
        if sampler.retry_at is not None:
            due = min(due, sampler.retry_at)


def _read_requests(timeout: float) -> bytes | None:
    """Return the requests that arrived within `timeout` seconds; None at the end of file."""
    if not select.select([0], [], [], timeout)[0]:
        return b""
    return os.read(0, 4096) or None


def _write(sample: Sample) -> None:
    line = encode(sample) if _NAMED in sys.argv else encode_0_1(sample)
    while line:
        line = line[os.write(1, line) :]


def _restart(wait: float, active: bool) -> None:
    """Replace this process, because a loaded library does not change after an upgrade."""
    options = [f"--wait={wait}", *(["--active"] if active else [])]
    options += [_NAMED] if _NAMED in sys.argv else []
    os.execv(
        sys.executable,
        [sys.executable, "-P", "-m", "stoker.engine.devices.driver_process", *options],
    )


def main() -> None:
    waits = [float(word[len("--wait=") :]) for word in sys.argv if word.startswith("--wait=")]
    sampler = Sampler(*waits)
    try:
        if "--once" not in sys.argv:
            return watch(sampler, "--active" in sys.argv)
        for reading in sampler.slow_readings(time.monotonic()):
            reading()
        _write(sampler.sample())
    except BrokenPipeError:
        pass  # the reader exited


if __name__ == "__main__":
    main()
