"""The options of a job that only travel: from submit to the process that starts it, or to a screen.

The scheduling policy and SQL queries do not read them, so one JSON column holds them, and no module
on their way names them. Values are decoded by name; those of a later release are kept.
"""

from __future__ import annotations

from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class JobSettings(Record):
    """A field has the name of its option, and a default that is not stored."""

    retries: int = 0
    restartable: bool = False
    on_oom: str | None = None  # bigger, elsewhere, alone or fail
    grace: float | None = None  # seconds between SIGTERM and SIGKILL; None: as the settings say
    signal: str | None = None  # sent before the time limit: USR1@60
    keep_children: bool = False
    no_bind: bool = False  # do not bind it to the CPUs near its GPUs
    warm: str | None = None  # start in a fork server that imported these modules; "": learned ones
    notify: str | None = None  # WHEN:WHERE, comma-separated
    activation: tuple[str, ...] = ()  # K=V of its environment: conda=NAME, container=IMAGE
    others: tuple[tuple[str, Any], ...] = ()  # options that this release does not know

    def values(self) -> dict[str, Any]:
        """All values by name, those of unknown options too."""
        known = zip(self._fields[:-1], self[:-1], strict=True)
        return {**dict(known), **dict(self.others)}

    def changes(self) -> dict[str, Any]:
        """The values that are not the default.

        >>> JobSettings(retries=2).changes()
        {'retries': 2}
        """
        defaults = self._field_defaults
        return {name: v for name, v in self.values().items() if v != defaults.get(name)}

    def to_json(self) -> str | None:
        """The values that are not the default as JSON; None if there are none."""
        pairs = [f"{_encoded(k)}:{_encoded(value)}" for k, value in self.changes().items()]
        if not pairs:
            return None
        text = "{" + ",".join(pairs) + "}"
        _remember(text, self)
        return text


# Settings by their JSON: jobs of one submit have the same, and a run in the foreground reads only
# what it wrote.
_decoded: dict[str, JobSettings] = {}
_MOST_DECODED = 1000

_PLAIN = frozenset(map(chr, range(32, 127))) - {'"', "\\"}


def _encoded(value: object) -> str:
    """A value as JSON, in ASCII, because names of files may not be valid UTF-8."""
    if value is True:
        return "true"
    if type(value) in (int, float):
        return repr(value)
    if isinstance(value, str) and _PLAIN.issuperset(value):
        return f'"{value}"'
    import json  # with `re`, this takes milliseconds, and most jobs do not need it

    return json.dumps(value)


DEFAULT_SETTINGS = JobSettings()
_KNOWN = frozenset(JobSettings._fields[:-1])


def settings_of(values: Mapping[str, Any]) -> JobSettings:
    """Return the settings with these values, which may come from JSON.

    >>> settings_of({"retries": 2, "nice": 5})._asdict()["others"]
    (('nice', 5),)
    """
    known, others = {}, []
    for name, value in values.items():
        if isinstance(value, list):
            value = tuple(value)
        if name in _KNOWN:
            known[name] = value
        else:
            others.append((name, value))
    return JobSettings(**known, others=tuple(others))


def settings_from_json(text: str | None) -> JobSettings:
    """The inverse of `JobSettings.to_json`."""
    if text is None:
        return DEFAULT_SETTINGS
    if text not in _decoded:
        import json

        _remember(text, settings_of(json.loads(text)))
    return _decoded[text]


def _remember(text: str, settings: JobSettings) -> None:
    if len(_decoded) >= _MOST_DECODED:
        _decoded.clear()
    _decoded[text] = settings
