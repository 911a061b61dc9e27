"""Runs the driver of each backend that has work (see features/backends/driver.py)."""

from __future__ import annotations

from stoker.engine.daemon.helper_process import DaemonHelper, DaemonParts, HelperProcess, News
from stoker.features.backends import store as backends
from stoker.settings import Settings


class _DriverProcess(HelperProcess):
    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(
            "stoker.features.backends.driver",
            f"the driver of the backend `{name}`",
            settings,
            (name,),
        )
        self.has_work = True

    def is_needed(self) -> bool:
        return self.has_work


class BackendDriverProcesses(DaemonHelper):
    """Without backends this costs one query per change of the queue."""

    def __init__(self, parts: DaemonParts) -> None:
        self._db = parts.db
        self._settings = parts.settings
        self._drivers: dict[str, _DriverProcess] = {}

    def descriptors(self) -> list[int]:
        return [one for driver in self._drivers.values() for one in driver.descriptors()]

    def next_deadline(self) -> float | None:
        due = (driver.next_deadline() for driver in self._drivers.values())
        return min((at for at in due if at is not None), default=None)

    def tick(self, now: float, news: News) -> str | None:
        """Start drivers that are needed; called in every tick. Returns an error, or None."""
        was_running = {name for name, one in self._drivers.items() if one.is_running}
        errors = [one.check(now, False) for one in self._drivers.values()]
        has_exited = any(not self._drivers[name].is_running for name in was_running)
        if news.was_read or has_exited:
            needed = backends.needs_driver(self._db)
            for name in needed:
                if name not in self._drivers:
                    self._drivers[name] = _DriverProcess(name, self._settings)
            for name, driver in self._drivers.items():
                driver.has_work = name in needed
                errors.append(driver.check(now, True))
        return next((error for error in errors if error is not None), None)

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.close()
