"""The NVIDIA driver in a separate process, with a clock that the test controls.

stdin: one time per line; stdout: the sample at that time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stoker.engine.devices.sample_lines import decode, encode
from stoker.engine.gpus.sample import Sample
from tests.fake_nvml import FakeNvml


class TimedDriver:
    def __init__(self, fake: FakeNvml) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | fake.env(),
            cwd=Path(__file__).parents[3],
        )

    def sample(self, now: float) -> Sample:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(b"%f\n" % now)
        self._process.stdin.flush()
        return decode(self._process.stdout.readline())

    def close(self) -> None:
        with self._process:
            self._process.kill()


def main() -> None:
    from stoker.engine.devices.nvidia import NvidiaDriver

    driver: NvidiaDriver | None = None
    for line in sys.stdin:
        now = float(line)
        driver = driver or NvidiaDriver(now)
        for chore in driver.slow_readings(now):
            chore()
        sys.stdout.buffer.write(
            encode(Sample(now, driver.gpus(now), driver.note, driver.take_faults()))
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
