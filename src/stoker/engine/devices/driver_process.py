"""The driver process: all calls of the driver happen here, because they may hang.

python -m stoker.engine.devices.driver_process [--once]

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

from stoker.engine.devices.driver import Driver, Unusable, driver_of_host
from stoker.engine.devices.sample_lines import encode
from stoker.engine.gpus.sample import Sample

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
        self._driver: Driver | None = None
        self._error: str | None = None

    def slow_readings(self, now: float) -> list[Callable[[], None]]:
        """Return the slow readings that are due before the next sample."""
        driver = self._open(now)
        return [] if driver is None else driver.slow_readings(now)

    def read_load(self, now: float) -> None:
        """Read utilization and power again, unless that was done a moment ago."""
        driver = self._open(now)
        if driver is not None:
            driver.read_load(now)

    def sample(self) -> Sample:
        now = time.monotonic()
        driver = self._open(now)
        if driver is None:
            return Sample(now, None, self._error)
        try:
            gpus = driver.gpus(now)
        except Unusable as error:
            driver.close()
            self._driver = None
            self._wait_after(error, now)
            return Sample(now, None, self._error)
        self.wait = _FIRST_WAIT_SECONDS
        return Sample(now, gpus, driver.note, driver.take_faults())

    def _open(self, now: float) -> Driver | None:
        if self._driver is None and (self.retry_at is None or now >= self.retry_at):
            try:
                self._driver = driver_of_host()(now)
                self.retry_at = None
            except Unusable as error:
                self._wait_after(error, now)
        return self._driver

    def _wait_after(self, error: Unusable, now: float) -> None:
        self._error = str(error)
        self.needs_reload = error.needs_reload
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
    line = encode(sample)
    while line:
        line = line[os.write(1, line) :]


def _restart(wait: float, active: bool) -> None:
    """Replace this process, because a loaded library does not change after an upgrade."""
    options = [f"--wait={wait}", *(["--active"] if active else [])]
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
