"""What Stoker asks of the driver of a GPU vendor, and which drivers it knows.

Another vendor is a module with a subclass of `Driver` and a row in DRIVERS;
tests/engine/devices/test_driver_contract.py has what it must pass. The simulated driver is chosen
by a setting instead (discovery.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from stoker.engine.gpus.sample import GpuFault, GpuSample
from stoker.engine.model import Device

# One row for each vendor. Without any of their drivers, the first one says what is missing.
DRIVERS = ("stoker.engine.devices.nvidia:NvidiaDriver",)


class Unusable(Exception):
    """The driver cannot be used; the message is one sentence.

    `needs_reload`: the loaded library is part of the problem, so the process has to restart.
    """

    def __init__(self, text: str, needs_reload: bool = False) -> None:
        super().__init__(text)
        self.needs_reload = needs_reload


class Driver:
    """An open driver, with defaults for what a driver may not have.

    A call can block for any time, even after SIGKILL: only the driver process (driver_process.py)
    opens the driver of a vendor. `is_present` and `listed_devices` may be called anywhere, so they
    load no library of the vendor and never block.
    """

    vendor = ""  # as in "the VENDOR driver does not answer"
    note: str | None = None  # why a GPU could not be opened at all

    @staticmethod
    def is_present() -> bool:
        """Whether this host seems to have the driver."""
        return False

    @staticmethod
    def listed_devices() -> tuple[Device, ...]:
        """The GPUs that the system lists, for when the driver does not answer."""
        return ()

    def __init__(self, now: float) -> None:
        """Open the driver, at this monotonic time. Raises Unusable."""
        raise NotImplementedError

    def gpus(self, now: float) -> tuple[GpuSample, ...]:
        """Return the GPUs with their memory and processes, GPUs before slices of GPUs.

        Numbers and UUIDs are unique. A GPU that fails is still returned, with its last values and
        an `error`. Raises Unusable if that is not possible for any GPU; the driver is then closed.
        """
        raise NotImplementedError

    def slow_readings(self, now: float) -> list[Callable[[], None]]:
        """Return the slow readings that are due, such as power, to be called one by one.

        Their values are part of what `gpus` returns afterwards; they raise nothing.
        """
        return []

    def read_load(self, now: float) -> None:
        """Read utilization and power if the last readings are older than about half a second."""

    def take_faults(self) -> tuple[GpuFault, ...]:
        """Return the faults of GPUs since the last call."""
        return ()

    def close(self) -> None:
        """Release the driver; may be called twice."""


def known_drivers() -> list[type[Driver]]:
    drivers = []
    for row in DRIVERS:
        module, _, name = row.partition(":")
        __import__(module)  # importing importlib takes longer than the module
        drivers.append(getattr(sys.modules[module], name))
    return drivers


def driver_of_host() -> type[Driver]:
    """The first driver that this host has; the first of all if it has none."""
    known = known_drivers()
    return next((driver for driver in known if driver.is_present()), known[0])
