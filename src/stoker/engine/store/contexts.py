"""Contexts: folder, environment, umask and shell of submitted jobs."""

from __future__ import annotations

from stoker.engine.model import Context
from stoker.engine.store.database import Database
from stoker.text.byte_text import to_text, unpack_pairs


def load_context(db: Database, id: int) -> Context:
    cwd, env, umask, shell = db.execute(
        "SELECT cwd, env, umask, shell FROM contexts WHERE id = ?", (id,)
    ).fetchone()
    return Context(to_text(cwd), unpack_pairs(env), umask, to_text(shell))
