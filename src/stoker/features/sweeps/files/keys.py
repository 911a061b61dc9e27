"""Read typed values from the tables of sweep files; errors name the key and the expected type."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.errors import UsageError
from stoker.features.sweeps.spec import other_names
from stoker.features.sweeps.spec.spec import (
    Metric,
    known_goal,
    make_metric,
    read_metric,
    refuse_unknown,
)


def table(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise UsageError(f"`{place}` is not a table", "write keys and values")
    return {str(key): part for key, part in value.items()}


def listed(value: object, place: str) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise UsageError(f"`{place}` is not a list", "write [a, b]")
    return list(value)


def text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"`{place}` is `{value}`, which is not a string", "put it in quotes")
    return value


def whole(value: object, place: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise UsageError(f"`{place}` is `{value}`, which is not an integer")
    return value


def number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"`{place}` is `{value}`, which is not a number")
    return value


def metric(value: object) -> Metric:
    """Read a metric: `"val_loss"`, or a table with name, goal and target."""
    if isinstance(value, str):
        found = read_metric(value)
        known_goal(found, f'write "{found.name}:min" or "{found.name}:max"')
        return found
    given = table(value, "metric")
    known = ("name", "goal", "target", "impute", "impute_while_running")
    refuse_unknown(given, known, "metric.", other_names.METRIC_KEYS)
    target = number(given["target"], "metric.target") if "target" in given else None
    if "name" not in given:
        raise UsageError("`metric` has no name", "write name = 'val_loss'")
    goal = text(given["goal"], "metric.goal") if "goal" in given else None
    found = make_metric(text(given["name"], "metric.name"), goal, target)
    known_goal(found, 'add goal = "min" or goal = "max"')
    return found
