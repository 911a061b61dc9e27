"""Changes of what a GPU does, as lines of JSON from the daemon to the usage recorder."""

from __future__ import annotations

import json

from stoker.fields import from_fields, to_fields
from stoker.record import Record

_PREFIX = b'{"activity":'
_encode = json.JSONEncoder(separators=(",", ":")).encode

GONE = "gone"  # the kind of a GPU that this host does not have any more


class ActivityChange(Record):
    """A GPU does this since `at` (wall clock). Field names are part of the message format."""

    uuid: str
    at: float
    kind: str  # see features/history/gpu_activity.py, or GONE
    jobs: tuple[int, ...] = ()  # the first few
    reason: str = ""
    starts: int = 0  # jobs that started on it since the change before


def encode(change: ActivityChange) -> bytes:
    return _PREFIX + _encode(to_fields(change)).encode() + b"}\n"


def decode(line: bytes) -> ActivityChange | None:
    """Return the change of a line; None if the line is something else.

    >>> change = ActivityChange("GPU-1", 1.5, "busy", (7, 8), starts=1)
    >>> decode(encode(change)) == change, decode(b'{"at":1.5}')
    (True, None)
    """
    if not line.startswith(_PREFIX):
        return None
    try:
        change = from_fields(ActivityChange, json.loads(line)["activity"])
        return change._replace(jobs=tuple(change.jobs), at=float(change.at))
    except (KeyError, TypeError, ValueError):
        return None
