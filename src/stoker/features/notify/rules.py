"""When a job notifies, and where: `failure`, `end:phone`, `sweep-end:lab,gpu-lost:phone`."""

from __future__ import annotations

from stoker.errors import UsageError
from stoker.record import Record

END, FAILURE, FIRST_FAILURE = "end", "failure", "first-failure"
SWEEP_END, TIME_LIMIT, GPU_LOST = "sweep-end", "time-limit", "gpu-lost"
EVENTS = (END, FAILURE, FIRST_FAILURE, SWEEP_END, TIME_LIMIT, GPU_LOST)
ALL, NONE = "all", "none"
DESKTOP = "desktop"  # a place that exists without being added
MAX_NAME = 40
# Words of other tools, and natural mistakes.
_SYNONYMS = {
    "always": ALL, "any": ALL, "done": END, "ended": END, "finish": END, "finished": END,
    "success": END, "error": FAILURE, "fail": FAILURE, "failed": FAILURE, "failures": FAILURE,
    "first": FIRST_FAILURE, "sweep": SWEEP_END, "sweep-finished": SWEEP_END, "gpu": GPU_LOST,
    "limit": TIME_LIMIT, "timeout": TIME_LIMIT, "time_limit": TIME_LIMIT, "off": NONE,
    "never": NONE, "sweep_end": SWEEP_END, "gpu_lost": GPU_LOST, "first_failure": FIRST_FAILURE,
}  # fmt: skip


class NotifyRule(Record):
    """One event of a job, and the place that is notified; None: the default of the settings."""

    when: str
    where: str | None = None


def parse_rules(text: str) -> tuple[NotifyRule, ...]:
    """Parse `WHEN[:WHERE]`, or several by comma. Raises UsageError.

    `all` stands for every event. `none` stays one rule: it replaces the default of the settings.

    >>> [tuple(rule) for rule in parse_rules("end,failure:phone")]
    [('end', None), ('failure', 'phone')]
    >>> len(parse_rules("all:lab")), parse_rules("none")[0].when
    (6, 'none')
    """
    found: dict[NotifyRule, None] = {}
    for part in text.split(","):
        when, colon, where = part.strip().partition(":")
        if when not in (*EVENTS, ALL, NONE):
            raise _unknown(when)
        if colon and (when == NONE or not is_place_name(where)):
            raise _bad_place(part.strip(), when)
        for one in EVENTS if when == ALL else (when,):
            found[NotifyRule(one, where or None)] = None
    return joined(tuple(found))


def joined(rules: tuple[NotifyRule, ...]) -> tuple[NotifyRule, ...]:
    """The rules without repetitions. Raises UsageError if `none` has company."""
    once = tuple(dict.fromkeys(rules))
    if len(once) > 1 and any(rule.when == NONE for rule in once):
        raise UsageError("`none` and other events exclude each other", "use one of them")
    return once


def format_rules(rules: tuple[NotifyRule, ...]) -> str:
    """The rules as text that `parse_rules` reads.

    >>> format_rules(parse_rules("failure:phone,end"))
    'failure:phone,end'
    """
    return ",".join(f"{when}:{where}" if where else when for when, where in rules)


def is_place_name(text: str) -> bool:
    """Whether a text can be the name of a place: letters, digits, `-` and `_`."""
    bare = text.replace("-", "").replace("_", "")
    return bool(bare) and bare.isascii() and bare.isalnum() and len(text) <= MAX_NAME


def places_for(notify: str, events: tuple[str, ...]) -> tuple[str, ...]:
    """The places that a job's rules name for any of these events, without repetitions.

    >>> places_for("end:phone,failure:lab,failure:phone", ("end", "failure"))
    ('phone', 'lab')
    """
    rules = (part.partition(":") for part in notify.split(","))
    return tuple(dict.fromkeys(where for when, _, where in rules if where and when in events))


def _unknown(when: str) -> UsageError:
    from stoker.text.suggestions import nearest

    near = nearest(when, (*EVENTS, ALL, NONE), _SYNONYMS) if when else None
    words = f"events: {', '.join(EVENTS)}; all or none"
    return UsageError(
        f"`{when}` is not an event that notifies", f"did you mean `{near}`?" if near else words
    )


def _bad_place(part: str, when: str) -> UsageError:
    if when == NONE:
        return UsageError(f"`{part}` has a place, but `none` notifies no place", "write none")
    return UsageError(
        f"`{part}` does not name a place",
        "write the name given to `stoker notify add`, e.g. failure:phone",
    )
