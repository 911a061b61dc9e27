"""The errors of earlier forecasts (core/policy/forecast_error.py), kept by the daemon."""

from __future__ import annotations

from stoker.core.policy.forecast_error import Errors, from_text, to_text
from stoker.store.database import Database
from stoker.store.meta import get_meta, set_meta

_KEY = "forecast_errors"


def load_errors(db: Database) -> Errors:
    return from_text(str(get_meta(db, _KEY) or ""))


def save_errors(db: Database, errors: Errors) -> None:
    set_meta(db, _KEY, to_text(errors))
