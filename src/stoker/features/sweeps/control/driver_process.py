"""Runs the sweep driver while a sweep needs one (see features/sweeps/control/sweep_driver.py)."""

from __future__ import annotations

import os

from stoker.engine.daemon.helper_process import DaemonParts, HelperProcess, News
from stoker.features.sweeps import store as sweeps

# Contains why the sweep driver is not running. The daemon writes it, a working driver removes it.
PAUSE_FILE = "driver.paused"


class SweepDriverProcess(HelperProcess):
    def __init__(self, parts: DaemonParts) -> None:
        super().__init__(
            "stoker.features.sweeps.control.sweep_driver", "the sweep driver", parts.settings
        )
        self._db = parts.db

    def is_needed(self) -> bool:
        return sweeps.has_driven(self._db)

    def tick(self, now: float, news: News) -> str | None:
        return self.check(now, news.was_woken)

    def _failed(self, now: float, how: str) -> str:
        text = super()._failed(now, how)
        if self._backoff.is_paused:
            _write(os.path.join(self._settings.state_dir, PAUSE_FILE), text)
        return text


def _write(path: str, text: str) -> None:
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
        os.replace(f"{path}.new", path)
    except OSError:
        pass  # a full disk: the daemon's log has the text too


def pause_reason(state_dir: str) -> str | None:
    """Why the sweep driver is not running now; None if it is running or not needed."""
    try:
        with open(os.path.join(state_dir, PAUSE_FILE), encoding="utf-8") as file:
            return file.read().strip() or None
    except OSError:
        return None
