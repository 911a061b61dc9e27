"""Changes that would start a waiting job, as JSON for `stoker why --json` and the web UI."""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.policy.what_if import WhatIf
from stoker.engine.store.job_queries import JobRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def what_if_json(row: JobRow, changes: Iterable[WhatIf]) -> list[dict[str, Any]]:
    """`fields` is the body of PATCH /api/jobs/{id}; `command` does the same in a terminal."""
    return [
        {
            "words": one.start_words,
            "starts_in": round(one.starts_in, 1),
            "command": one.command(row.id),
            "fields": dict(one.change.fields),
        }
        for one in changes
    ]
