"""Runs `stoker results --compare`: selected runs side by side."""

from __future__ import annotations

from stoker.cli.output import notice, plural, print_json, table
from stoker.engine.store.database import Database
from stoker.errors import UsageError
from stoker.features.results.export import short
from stoker.features.results.run_comparison import (
    DEFAULT_RUNS,
    MAX_RUNS,
    Compared,
    Comparison,
    compare_runs,
    comparison_json,
    differing,
)
from stoker.features.results.run_selection import Selection
from stoker.text.command_line import Parsed
from stoker.text.durations import format_duration

_OTHER_OPTIONS = (
    "sort",
    "where",
    "best",
    "metric",
    "group",
    "columns",
    "csv",
    "jsonl",
    "parquet",
    "output",
)
_MOST_COLUMNS = 5  # more runs than that are lines instead of columns
_COMMIT_CHARS = 12


def print_comparison(db: Database, selection: Selection, parsed: Parsed) -> int:
    _check(selection, parsed)
    limit = parsed["limit"] or DEFAULT_RUNS
    comparison = compare_runs(db, selection, limit)
    if parsed["json"]:
        print_json(**comparison_json(comparison))
        return 0
    shows_all = bool(parsed["all"])
    lines = _lines(comparison, shows_all)
    header = ("run", *(run.word for run in comparison.runs))
    cells = [header, *lines]
    if len(comparison.runs) > _MOST_COLUMNS:
        cells = [tuple(line) for line in zip(*cells, strict=True)]
    states = cells[0].index("state") if "state" in cells[0] else -1
    print(table(tuple(map(str, cells[0])), cells[1:], state=states))
    if not shows_all:
        _say_what_is_equal(comparison)
    if comparison.left_off:
        own = selection.own_metrics
        order = f"the best by {own[0].words}" if own else "the first"
        notice(
            f"{plural(comparison.left_off, 'run')} left off: {order} are compared; -n N compares"
            f" more, at most {MAX_RUNS}"
        )
    return 0


def _check(selection: Selection, parsed: Parsed) -> None:
    for option in _OTHER_OPTIONS:
        if parsed[option]:
            raise UsageError(
                f"--compare cannot be combined with --{option}",
                "select single runs as SWEEP/TRIAL, and export with --compare --json",
            )
    if len(selection.runs) < 2:
        raise UsageError(
            f"--compare needs two runs or more, not {len(selection.runs)}",
            "for example: stoker results brave-otter/3 brave-otter/7 --compare",
        )
    if (parsed["limit"] or 0) > MAX_RUNS:
        raise UsageError(
            f"{parsed['limit']} runs are too many to compare", f"use -n {MAX_RUNS} or less"
        )


def _lines(comparison: Comparison, shows_all: bool) -> list[tuple[str, ...]]:
    """One line for each property, with a cell for each run."""
    runs = comparison.runs
    parts = (comparison.params, comparison.code)
    params, code = (part if shows_all else differing(part) for part in parts)
    code = [line for line in code if any(value is not None for value in line.values)]
    is_one_sweep = runs[0].sweep is not None and len({run.sweep for run in runs}) == 1
    if is_one_sweep and params and not shows_all:
        # The commands differ in the parameters, which are shown.
        code = [line for line in code if line.name != "command"]
    times = [run.row.seconds for run in runs]
    names = {line.name for line in params}
    metrics = [
        line._replace(name=f"metric.{line.name}") if line.name in names else line
        for line in comparison.metrics
    ]
    return [
        ("state", *(run.row.state for run in runs)),
        ("time", *("-" if time is None else format_duration(time) for time in times)),
        *(_cells(line) for line in params),
        *(_cells(line) for line in metrics),
        *(_cells(line) for line in code),
    ]


def _cells(line: Compared) -> tuple[str, ...]:
    most = _COMMIT_CHARS if line.name in ("commit", "snapshot") else None
    return (line.name, *(short(value)[:most] for value in line.values))


def _say_what_is_equal(comparison: Comparison) -> None:
    lines = (*comparison.params, *comparison.code)
    equal = sum(not line.differs and line.values[0] is not None for line in lines)
    if equal:
        are = "property is" if equal == 1 else "properties are"
        notice(f"{equal} {are} equal in all runs; --all shows them")
