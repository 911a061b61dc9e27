"""Records as named fields, for values that cross a process border or wait on disk.

Processes of two releases meet whenever Stoker is upgraded while it works. A record that is decoded
by name can grow: unknown fields are ignored, missing ones take their defaults.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Kind = TypeVar("Kind", bound=tuple[Any, ...])


def from_fields(kind: type[Kind], given: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Kind:
    """The record with the values of `given`, by name. Raises ValueError when a field is missing
    that has no default.

    A sequence is what releases before 0.2 wrote: values in the order of the fields.

    >>> from stoker.core.model import Dependency
    >>> from_fields(Dependency, {"job": 7, "mood": "sunny"})
    Dependency(job=7, condition='ok')
    >>> from_fields(Dependency, [7, "any"])
    Dependency(job=7, condition='any')
    """
    record: Any = kind
    names: tuple[str, ...] = record._fields
    if isinstance(given, list | tuple):
        given = dict(zip(names, given, strict=False))
    defaults: dict[str, Any] = record._field_defaults
    try:
        made: Kind = record._make(
            [given[name] if name in given else defaults[name] for name in names]
        )
    except KeyError as missing:
        raise ValueError(f"{kind.__name__} without a value for {missing}") from None
    return made


def to_fields(record: Any) -> Any:
    """A record as a dictionary that JSON can hold, records inside it included."""
    if isinstance(record, tuple):
        names = getattr(record, "_fields", None)
        if names is None:
            return [to_fields(value) for value in record]
        return {name: to_fields(value) for name, value in zip(names, record, strict=True)}
    return record
