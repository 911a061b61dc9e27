"""The folders of the newest jobs, as suggestions for the next one."""

from __future__ import annotations

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.states import STATES

_JOBS = 300  # that are examined
_FOLDERS = 15


def recent_folders(db: Database) -> list[str]:
    """Return the working directories of the newest jobs without duplicates, newest first.

    A job that runs in a snapshot has the folder from which it was submitted.
    """
    rows = job_queries.jobs_in_states(db, STATES, _JOBS, newest_first=True)
    return list(dict.fromkeys(row.cwd for row in rows))[:_FOLDERS]
