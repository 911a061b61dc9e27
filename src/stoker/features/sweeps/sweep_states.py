"""The state of a sweep in one word, and why its search is paused."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.engine.store.database import Database
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control.driver_process import pause_reason
from stoker.features.sweeps.store import SweepRow
from stoker.states import ACTIVE, WAITING


def sweep_state(db: Database, row: SweepRow, trials: Mapping[str, int]) -> str:
    """active, paused, stopped or finished. `trials`: their number by state."""
    if row.stopped is not None:
        return "stopped"
    if pause(db, row) is not None:
        return "paused"
    is_unfinished = any(trials.get(state) for state in (*WAITING, *ACTIVE))
    return "active" if is_unfinished or row.is_driven else "finished"


def pause(db: Database, row: SweepRow) -> str | None:
    """Why the search adds no trials at the moment; None if it is not paused."""
    if row.stopped is not None or not row.is_driven:
        return None
    return sweeps.pause(db, row.id) or pause_reason(db.folder)
