"""Calls of a driver for test_driver_contract.py, in a process that loads the driver's library.

python -m tests.engine.devices.driver_calls MODULE:CLASS ARGUMENT FUNCTION
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from stoker.engine.devices.driver import Driver
from stoker.engine.gpus.sample import GpuFault, GpuSample

ROOT = Path(__file__).parents[3]


def samples(driver: Driver) -> list[tuple[GpuSample, ...]]:
    return [driver.gpus(now) for now in (1.0, 1.5, 60.0)]


def due_readings(driver: Driver) -> tuple[int, int, tuple[GpuSample, ...]]:
    """How many slow readings are due, how many at once afterwards, and the GPUs."""
    readings = driver.slow_readings(1.0)
    for reading in readings:
        reading()
    driver.read_load(1.1)
    return len(readings), len(driver.slow_readings(1.1)), driver.gpus(1.1)


def faults(driver: Driver) -> list[tuple[GpuFault, ...]]:
    driver.gpus(1.0)
    return [driver.take_faults(), driver.take_faults()]


def closed_twice(driver: Driver) -> bool:
    driver.gpus(1.0)
    driver.close()
    driver.close()
    return True


def imports_of_detection(driver: type[Driver]) -> set[str]:
    """The modules that are loaded after looking whether there is a driver."""
    assert driver.is_present() in (True, False)
    assert isinstance(driver.listed_devices(), tuple)
    return set(sys.modules)


def result_of(
    function: Callable[..., Any], row: str, argument: object, env: Mapping[str, str]
) -> Any:
    words = [sys.executable, "-m", __name__, row, repr(argument), function.__name__]
    done = subprocess.run(words, env=env, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return pickle.loads(done.stdout)


def main() -> None:
    row, argument, function = sys.argv[1:]
    module, name = row.split(":")
    driver = getattr(import_module(module), name)
    if function != imports_of_detection.__name__:
        driver = driver(eval(argument))
    sys.stdout.buffer.write(pickle.dumps(globals()[function](driver)))


if __name__ == "__main__":
    main()
