"""Jobs that ran when the host was restarted, as long as no daemon has recorded that.

The database still has them as running. Every view shows what the next daemon will record: `lost`,
`cancelled` if a user had cancelled it, or `queued` if the job is restartable. Attempts on backends
are not affected: they do not run on this host.
"""

from __future__ import annotations

from stoker.boot import boot_id
from stoker.engine.outcome.retry import MAX_LOST_RETRIES
from stoker.engine.store.database import Database
from stoker.states import CANCELLED, LOST, QUEUED, STARTED, STARTING

REBOOTED = "the host was restarted"
STARTED_LIST = ", ".join(f"'{state}'" for state in STARTED)
# The columns that `next_state` needs, of jobs `j` and attempts `a`.
COLUMNS = (
    "j.state, a.boot, a.allocation, j.stop_requested IS NOT NULL,"
    " json_extract(j.settings, '$.restartable'),"
    " j.attempts - j.requeues - j.preemptions"
)


def next_state(
    state: str,
    boot: str | None,
    allocation: int | None,
    is_cancelled: bool,
    restartable: bool | None,
    attempts: int,
) -> str:
    """Return the state of a job, or the next one if its attempt is of an earlier boot."""
    if state not in STARTED or boot is None or allocation is not None or boot == boot_id():
        return state
    if is_cancelled:
        return CANCELLED
    if state == STARTING or (restartable and attempts <= MAX_LOST_RETRIES):
        return QUEUED
    return LOST


def interrupted(db: Database) -> dict[int, tuple[str, str]]:
    """Return the stored state and the next state of such jobs; usually there are none."""
    rows = db.execute(
        f"SELECT j.id, {COLUMNS} FROM jobs AS j JOIN attempts AS a ON a.id = j.attempt"
        f" WHERE j.state IN ({STARTED_LIST}) AND a.allocation IS NULL AND a.boot != ?",
        (boot_id(),),
    )
    return {id: (values[0], next_state(*values)) for id, *values in rows}
