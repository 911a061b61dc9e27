"""The columns by which a user sorts a table: `-duration`, or `state,loss:desc`."""

from __future__ import annotations

from typing import Protocol


class KnownColumns(Protocol):
    @property
    def names(self) -> list[str]: ...

    def find(self, name: str) -> str: ...


def directions(key: str, known: KnownColumns) -> list[tuple[str, bool]]:
    """The columns of a sort key, each with whether it is descending. Raises UsageError."""
    parts = [key] if key in known.names else key.split(",")
    return [_direction(part.strip(), known) for part in parts]


def _direction(part: str, known: KnownColumns) -> tuple[str, bool]:
    if part in known.names:
        return part, False
    name, colon, way = part.rpartition(":")
    if colon and way in ("asc", "desc"):
        return known.find(name), way == "desc"
    if part.startswith("-"):
        return known.find(part[1:]), True
    return known.find(part), False
