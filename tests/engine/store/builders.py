"""Jobs and other records for tests of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stoker.engine.job_settings import JobSettings
from stoker.engine.model import Context, JobSpec, Request
from stoker.engine.store.database import Database, open_database
from stoker.engine.store.submit import Submission

CONTEXT = Context("/tmp", (("HOME", "/root"), ("PATH", "/bin")), 0o022, "/bin/sh")


_opened: list[Database] = []


def a_store(folder: Path, **options: Any) -> Database:
    """A store that the fixture in conftest.py closes."""
    _opened.append(open_database(str(folder), durable=False, **options))
    return _opened[-1]


def close_stores() -> None:
    while _opened:
        _opened.pop().close()


def a_spec(text: str = "true", gpus: int = 0, **fields: Any) -> JobSpec:
    own = {name: fields.pop(name) for name in JobSettings._fields if name in fields}
    return JobSpec((text,), CONTEXT, request=Request(gpus), settings=JobSettings(**own), **fields)


def add(db: Database, *specs: JobSpec, now: float = 1000.0) -> list[int]:
    return Submission(db).add(list(specs), now).ids
