"""A made-up schema before the current one, and the step that leads from it to the current one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from stoker.engine.store.database import SCHEMA_VERSION, open_database
from tests.engine.store.builders import a_spec, add

OLDER = SCHEMA_VERSION - 1
STEP = """
-- Four statements: a table and a column that are renamed or added, values, and an index.
ALTER TABLE speeds RENAME TO shared_speeds;
ALTER TABLE profiles ADD COLUMN spread REAL NOT NULL DEFAULT 0;
UPDATE profiles SET spread = 0.3 WHERE seconds IS NOT NULL;
CREATE INDEX jobs_by_rerun ON jobs (rerun_of) WHERE rerun_of IS NOT NULL;
"""
_UNDO = """
DROP INDEX jobs_by_rerun;
ALTER TABLE profiles DROP COLUMN spread;
ALTER TABLE shared_speeds RENAME TO speeds;
"""
# For a `sitecustomize` module, which every process of a lab imports.
REGISTER = f"""
from stoker.engine.store import upgrades
upgrades.STEPS[{OLDER}] = {STEP!r}
"""


def an_older_queue(folder: Path) -> None:
    """Three jobs wait: the second in the group of a sweep, the third for two GPUs."""
    with closing(open_database(str(folder))) as db:
        second = a_spec("a", gpus=1, fair_share_group="sweep:b")
        assert add(db, a_spec("a", gpus=1), second, a_spec("a", gpus=2)) == [1, 2, 3]
        db.execute("UPDATE profiles SET runs = 3, seconds = 60.0")
        db.execute("PRAGMA journal_mode=DELETE")  # everything is in one file
        db.connection.executescript(f"{_UNDO} PRAGMA user_version={OLDER};")
