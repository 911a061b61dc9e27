"""Keeps the driver alive while a sweep needs one (see stoker/driver.py)."""

from __future__ import annotations

from stoker.daemon.child import Child
from stoker.settings import Settings
from stoker.store import sweeps
from stoker.store.database import Database


class Mind(Child):
    def __init__(self, db: Database, settings: Settings) -> None:
        super().__init__("stoker.driver", "the driver of sweeps", settings)
        self._db = db

    def is_needed(self) -> bool:
        return sweeps.has_driven(self._db)
