"""The table [notify] of the settings file, without the addresses of places.

[notify]
when = "failure,sweep-end"    # for jobs without --notify
where = "phone"               # for notifications that do not name a place
interval = "30s"              # between two messages to the same place
log_lines = 0                 # last lines of the log in a message
command = true                # whether messages contain the command
link = "http://gpu1:8080"     # address of the web UI, for links in messages

[notify.places.phone]
url = "ntfy://..."            # a secret: read by places_file.py only when it is used
default = true                # without `where`: one of the default places
"""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.features.notify.rules import (
    DESKTOP,
    EVENTS,
    NONE,
    TIME_LIMIT,
    NotifyRule,
    format_rules,
    is_place_name,
    joined,
    parse_rules,
)
from stoker.record import Record
from stoker.text.durations import parse_duration

KEYS = ("when", "where", "interval", "log_lines", "command", "link", "places")
MAX_LOG_LINES = 100


class NotifySettings(Record):
    when: str = ""  # default rules; "": none
    where: tuple[str, ...] = ()  # default places
    interval: float = 30.0  # seconds between two messages to the same place
    log_lines: int = 0
    command: bool = True
    link: str = ""
    places: tuple[str, ...] = ()  # names


def read_notify_settings(table: object) -> NotifySettings:
    """Check the table. Raises ValueError or UsageError with the key and the value."""
    if not isinstance(table, dict):
        raise ValueError("must be a table")
    for key in table:
        if key not in KEYS:
            raise UsageError(f"unknown setting `notify.{key}`", f"known: {', '.join(KEYS)}")
    places = table.get("places", {})
    if not isinstance(places, dict):
        raise UsageError("`notify.places` must be a table", 'write [notify.places.NAME] url = "…"')
    for name, place in places.items():
        if not is_place_name(name):
            raise UsageError(f"`{name}` in `notify.places` is not a valid name of a place")
        if not isinstance(place, dict) or not isinstance(place.get("url"), str):
            raise UsageError(f"the place `{name}` in `notify.places` has no `url`")
        if set(place) - {"url", "default"}:
            raise UsageError(f"the place `{name}` has an unknown key", "known: url, default")
    defaults = tuple(name for name, place in places.items() if place.get("default") is True)
    when = ",".join(_words(table.get("when", "")))
    if when:
        parse_rules(when)
    return NotifySettings(
        when=when,
        where=_words(table.get("where", "")) or defaults,
        interval=_seconds(table.get("interval", 30.0)),
        log_lines=_lines(table.get("log_lines", 0)),
        command=_switch(table.get("command", True)),
        link=str(table.get("link", "")).rstrip("/"),
        places=tuple(places),
    )


def _words(value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else str(value).split(",")
    return tuple(dict.fromkeys(str(word).strip() for word in given if str(word).strip()))


def _seconds(value: object) -> float:
    return parse_duration(value, "s") if isinstance(value, str) else max(0.0, float(str(value)))


def _lines(value: object) -> int:
    return min(MAX_LOG_LINES, max(0, int(str(value))))


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"`notify.command` must be true or false, not `{value}`")
    return value


def resolve(
    rules: tuple[NotifyRule, ...] | None, settings: NotifySettings | None, uses_default: bool
) -> str | None:
    """The rules of a job with a place each, as text for its record; None: no notifications.

    `uses_default`: a job without rules gets those of the settings. Raises UsageError for an
    unknown place, and for rules without a place if there is no default.
    """
    settings = settings or NotifySettings()
    if rules is None:
        if not uses_default or not settings.when:
            return None
        rules = parse_rules(settings.when)
    found: dict[NotifyRule, None] = {}
    for rule in joined(rules):
        if rule.when == NONE:
            return None
        for where in _places(rule.where, settings):
            found[NotifyRule(rule.when, where)] = None
    return format_rules(tuple(found)) or None


def resolve_for_submit(
    rules: tuple[NotifyRule, ...] | None, settings: NotifySettings | None, in_foreground: bool
) -> str | None:
    """What `resolve` returns for a new job. A foreground run has no default notifications."""
    if in_foreground and rules is not None:
        return resolve(_of_foreground(rules), settings, False)
    return resolve(rules, settings, True)


def _of_foreground(rules: tuple[NotifyRule, ...]) -> tuple[NotifyRule, ...]:
    """The rules for a foreground run, which notifies when it ends: `all` has no time limit."""
    if {rule.when for rule in rules} < set(EVENTS) and any(r.when == TIME_LIMIT for r in rules):
        raise UsageError(
            f"`{TIME_LIMIT}` needs the daemon; a foreground run notifies when it ends",
            "submit the job, or remove it",
        )
    return tuple(rule for rule in rules if rule.when != TIME_LIMIT)


def default_places(settings: NotifySettings | None) -> tuple[str, ...]:
    """The default places: those of the settings, or the only place there is. () if none."""
    settings = settings or NotifySettings()
    return settings.where or (settings.places if len(settings.places) == 1 else ())


def _places(name: str | None, settings: NotifySettings) -> tuple[str, ...]:
    if name is None:
        places = default_places(settings)
        if not places and settings.places:
            raise UsageError(
                f"there are {len(settings.places)} places for notifications and no default",
                f"name one, e.g. end:{settings.places[0]}; or set `where` under [notify] in the"
                " settings file",
            )
        if not places:
            raise UsageError(
                "there is no place for notifications yet",
                "add one: stoker notify add NAME URL; or name this desktop: end:desktop",
            )
    else:
        places = (name,)
    for one in places:
        if one not in settings.places and one != DESKTOP:
            raise unknown_place(one, settings.places)
    return places


def unknown_place(name: str, known: tuple[str, ...]) -> UsageError:
    """The error for the name of a place that does not exist."""
    from stoker.text.suggestions import nearest

    near = nearest(name, (*known, DESKTOP))
    hint = f"did you mean `{near}`?" if near else f"add it: stoker notify add {name} URL"
    return UsageError(f"there is no place `{name}` for notifications", hint)
