"""The fields of a job that a clone inherits but a web form does not show.

The environment may contain secrets, so it is copied inside the database and not sent to a browser.
"""

from __future__ import annotations

from stoker.engine.job_settings import JobSettings, settings_from_json
from stoker.engine.model import Context
from stoker.engine.snapshot_context import original_context
from stoker.engine.store import contexts
from stoker.engine.store.database import Database
from stoker.errors import NotFound
from stoker.record import Record
from stoker.text.byte_text import unpack_pairs

# Variables of a sweep trial; a clone is not a trial.
_OF_TRIAL = (
    "STOKER_SWEEP",
    "STOKER_TRIAL",
    "STOKER_METRIC",
    "STOKER_OUTPUT_DIR",
    "STOKER_CHECKPOINT_DIR",
)


class CloneSource(Record):
    context: Context
    settings: JobSettings
    variables: tuple[tuple[str, str], ...]


def clone_source_of(db: Database, job: int) -> CloneSource:
    row = db.execute(
        "SELECT context, settings, variables FROM jobs WHERE id = ?",
        (job,),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no job {job} to clone", "`stoker ls` shows the jobs")
    context, settings, variables = row
    own = unpack_pairs(variables) if variables else ()
    kept = tuple(pair for pair in own if not pair[0].startswith(_OF_TRIAL))
    return CloneSource(
        context=original_context(contexts.load_context(db, context)),
        settings=settings_from_json(settings),
        variables=kept,
    )
