"""Records as named fields, for values that are sent to another process or stored on disk.

During an upgrade, processes of two releases exchange records. A record that is decoded by name can
gain fields: unknown fields are ignored, and missing ones take their defaults.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Kind = TypeVar("Kind", bound=tuple[Any, ...])


def from_fields(kind: type[Kind], given: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Kind:
    """Return the record with the values of `given`, matched by name.

    A sequence holds values in the order of the fields, as releases before 0.2 wrote them. Raises
    ValueError if a field without a default is missing.

    >>> from stoker.engine.model import Dependency
    >>> from_fields(Dependency, {"job": 7, "unknown": "x"})
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
        raise ValueError(f"{kind.__name__} has no value for {missing}") from None
    return made


def to_fields(record: Any) -> Any:
    """Return a record, and the records inside it, as dictionaries that JSON can encode."""
    if isinstance(record, tuple):
        names = getattr(record, "_fields", None)
        if names is None:
            return [to_fields(value) for value in record]
        return {name: to_fields(value) for name, value in zip(names, record, strict=True)}
    return record
