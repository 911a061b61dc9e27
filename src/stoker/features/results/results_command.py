"""Runs `stoker results`: find the reports, sort, filter, group, print or export them."""

from __future__ import annotations

import os
import sys

from stoker.cli.open_queue import at_end, open_queue
from stoker.cli.output import notice, plural, print_json, table
from stoker.engine.store import job_queries
from stoker.engine.store.database import FILE_NAME, Database, open_database, open_for_reading
from stoker.errors import NotFound, UsageError
from stoker.features.results import export
from stoker.features.results.export import short
from stoker.features.results.reports.reports import JobFiles, Reported
from stoker.features.results.run_comparison import (
    DEFAULT_RUNS,
    MAX_RUNS,
    Compared,
    Comparison,
    compare_runs,
    comparison_json,
    differing,
)
from stoker.features.results.run_selection import RunSelector, Selection
from stoker.features.results.table import (
    Columns,
    Row,
    Table,
    best_first,
    columns,
    grouped,
    ranked,
    select_columns,
    select_from_table,
    sort,
    sort_lines,
    where,
)
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.spec.spec import Metric, known_goal, read_metric
from stoker.features.sweeps.store_provenance import trial_codes
from stoker.record import Record
from stoker.settings import load_settings
from stoker.text.command_line import Parsed
from stoker.text.durations import format_duration
from stoker.text.terminal import printable


def run(parsed: Parsed) -> int:
    found = find_selection(parsed.words, "results")
    selection = found.selection
    if parsed["compare"]:
        return print_comparison(found.db, selection, parsed)
    rows = selection.rows_of(selection.runs)
    if not rows:
        raise NotFound("there are no trials yet", "list the sweeps with: stoker sweep ls")
    metric = chosen_metric(parsed["metric"], selection)
    known = Columns(rows)  # of all rows, so that a filter hides no column
    # A program that reads the output expects every parameter, whatever the values are.
    is_for_programs = parsed["json"] or _form(parsed)[0] is not None
    chosen = columns(rows, constants=bool(parsed["all"] or is_for_programs))
    for text in parsed["where"] or ():
        rows = where(rows, text, known)
    goal = None
    if parsed["group"] is not None:
        return _print_groups(rows, known, parsed, metric)
    if parsed["best"] is not None:
        if metric is None:
            raise UsageError("`--best` needs a metric", "add --metric val_loss or --metric acc:max")
        goal = known_goal(metric)
        # A parameter may have the same name.
        rows = best_first(rows, f"metric.{metric.name}", goal, known)[: parsed["best"]]
    if parsed["sort"] is not None:
        rows = sort(rows, parsed["sort"], known=known)
    if parsed["limit"]:
        rows = rows[: parsed["limit"]]
    if parsed["columns"] is not None:
        chosen = _listed(parsed["columns"])
    content = select_columns(rows, chosen, known)
    if not _written(content, parsed):
        if parsed["json"]:
            ranking = {"metric": metric.name, "goal": goal} if goal and metric else {}
            print_json(rows=export.records(content), **ranking)
        else:
            print_table(content)
    if goal is not None and metric is not None:
        notice(f"best by {metric.words}")
    if not parsed["json"]:
        _warn_about_bad_reports([run.reported for run in selection.runs])
        _warn_about_other_code(found.db, selection)
    return 0


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


class Found(Record):
    """Selected runs, and the queue or log folder that has them."""

    db: Database
    files: JobFiles
    selection: Selection


def find_selection(words: list[str], verb: str) -> Found:
    """Find the sweeps, trials, jobs or log folder given on the command line, with their reports.

    `verb`: the command, for hints. Raises NotFound or UsageError if there is none.
    """
    if not words:
        queue = open_queue()
        newest = sweeps.all_sweeps(queue.db)
        if not newest:
            raise UsageError("there are no sweeps yet", f"for jobs: stoker {verb} 3-9")
        words = [newest[-1].name]
        notice(
            f"sweep {words[0]}, the newest of {len(newest)}" if newest[1:] else f"sweep {words[0]}"
        )
    if len(words) == 1 and _is_log_folder(words[0]):
        folder = os.path.abspath(words[0])
        # Other programs have files of this name too: nothing is written into the folder, unless
        # Stoker is writing there.
        db = open_for_reading(folder)
        if os.path.exists(os.path.join(folder, f"{FILE_NAME}-wal")):
            db.close()
            db = open_database(folder)
        at_end(db.close)
        files = JobFiles(folder, is_run=True)
        return Found(db, files, _of_folder(db, RunSelector(db, files)))
    queue = open_queue()
    files = JobFiles(queue.settings.state_dir)
    selector = RunSelector(queue.db, files)
    if all(_is_of_sweep(queue.db, word) for word in words):
        return Found(queue.db, files, selector.select(words))
    parts = [
        part
        for word in words
        for part in (word.split(",") if not word.startswith("name:") else [word])
    ]
    try:
        return Found(queue.db, files, selector.select(parts))
    except NotFound as error:
        if len(words) == 1 and words[0].isascii() and not words[0][:1].isdigit():
            name = words[0].removeprefix("sweep:")
            raise NotFound(
                f"`{name}` is not a sweep, job or log folder", sweeps.near_name(queue.db, name)
            ) from None
        raise error


def _is_log_folder(word: str) -> bool:
    """Whether a word is a folder with the records of `stoker run`, and not a sweep of the queue."""
    if not os.path.isfile(os.path.join(word, FILE_NAME)):
        return False
    has_queue = os.path.isfile(os.path.join(load_settings().state_dir, FILE_NAME))
    return not has_queue or "/" in word or sweeps.by_name(open_queue().db, word) is None


def _is_of_sweep(db: Database, word: str) -> bool:
    return sweeps.by_name(db, word.removeprefix("sweep:").partition("/")[0]) is not None


def _of_folder(db: Database, selector: RunSelector) -> Selection:
    found = sweeps.all_sweeps(db)
    if found:
        return selector.select([found[0].name])
    jobs = job_queries.jobs_in_states(db, ("done", "failed", "cancelled", "lost", "running"), 10**6)
    return selector.jobs([job.id for job in jobs])


def chosen_metric(text: str | None, selection: Selection) -> Metric | None:
    """The requested metric, or that of the first sweep that has one."""
    if text is None:
        return selection.own_metrics[0] if selection.own_metrics else None
    return read_metric(text, selection.own_metrics)


def _written(content: Table, parsed: Parsed) -> bool:
    """Write the table if an export format was requested; return whether it was."""
    form, path = _form(parsed)
    if form is None:
        return False
    data = export.export(content, form)
    if path is None:
        write_stdout(data)
        return True
    write_export(path, data, parsed)
    notice(f"wrote {plural(len(content.lines), 'row')} to {printable(path)}")
    return True


def write_export(path: str, data: bytes, parsed: Parsed) -> None:
    """Write a file, or stdout for a file of another machine. Raises UsageError."""
    if parsed["to_stdout"]:
        write_stdout(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None


def write_stdout(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_table(content: Table) -> None:
    """Print a table for people: durations instead of seconds, short numbers."""
    header, lines = export.text_table(content)
    if "seconds" in header:
        at = header.index("seconds")
        header = (*header[:at], "time", *header[at + 1 :])
        lines = [
            (*line[:at], _time(row[at]), *line[at + 1 :])
            for line, row in zip(lines, content.lines, strict=True)
        ]
    state = header.index("state") if "state" in header else -1
    print(
        table(
            tuple(name.upper() if name in _FIXED else name for name in header), lines, state=state
        )
    )


_FIXED = ("trial", "job", "state", "time")


def _time(seconds: object) -> str:
    return format_duration(seconds) if isinstance(seconds, (int, float)) else ""


def _form(parsed: Parsed) -> tuple[str | None, str | None]:
    if parsed["csv"]:
        return "csv", parsed["output"]
    if parsed["jsonl"]:
        return "jsonl", parsed["output"]
    if parsed["parquet"] is not None:
        return "parquet", parsed["parquet"]
    path = parsed["output"]
    if path is None:
        return None, None
    form = path.rpartition(".")[2].lower()
    if form not in ("csv", "json", "jsonl", "parquet", "html"):
        raise UsageError(
            f"`{path}` has an unknown suffix", "use .csv, .json, .jsonl, .parquet or .html"
        )
    return form, path


def _print_groups(rows: list[Row], known: Columns, parsed: Parsed, metric: Metric | None) -> int:
    """Group the rows; groups can be sorted, limited and exported like rows."""
    if metric is None:
        raise UsageError("`--group` needs a metric", "add --metric val_loss")
    if parsed["all"]:
        raise UsageError(
            "`--all` cannot be combined with `--group`, which shows no single trials",
            "group by more columns: --group lr,opt",
        )
    content = grouped(rows, _listed(parsed["group"]), f"metric.{metric.name}", known)
    if parsed["best"] is not None:
        known_goal(metric)
    is_ranked = metric.goal is not None and (parsed["best"] is not None or parsed["sort"] is None)
    if is_ranked:
        means = [line[-5] for line in content.lines]
        content = content._replace(lines=ranked(content.lines, means, metric.goal))
    if parsed["best"] is not None:
        content = content._replace(lines=content.lines[: parsed["best"]])
    if parsed["sort"] is not None:
        content = sort_lines(content, parsed["sort"])
    if parsed["limit"]:
        content = content._replace(lines=content.lines[: parsed["limit"]])
    shown = content
    if parsed["columns"]:
        shown = select_from_table(content, _listed(parsed["columns"]))
    if _written(shown, parsed):
        return 0
    if parsed["json"]:
        print_json(metric=metric.name, goal=metric.goal, groups=export.records(shown))
    elif parsed["columns"] is not None:
        print_table(shown)
    else:
        header, lines = export.text_table(content)
        print(
            table(
                (*header[:-6], "N", f"{metric.name} MEAN", "SD", "MIN", "MAX"),
                [line[:-1] for line in lines],
            )
        )
    if is_ranked:
        notice(f"best by the mean of {metric.words}")
    return 0


def _warn_about_other_code(db: Database, selection: Selection) -> None:
    from stoker.features.sweeps.sweep_command import warn_about_code

    for name in dict.fromkeys(run.selected_sweep for run in selection.runs):
        row = None if name is None else sweeps.by_name(db, name)
        others = [] if row is None else trial_codes(db, row.id).others
        shown = {run.row.trial for run in selection.runs if run.selected_sweep == name}
        if row is not None and shown.intersection(others):
            warn_about_code(row.name, others, "the newest trial (column `code`)")


def _warn_about_bad_reports(reported: list[Reported]) -> None:
    bad = [one for one in reported if one.error is not None]
    if bad:
        first = bad[0]
        what = f"trial {first.row.trial}" if first.row.trial is not None else f"job {first.row.job}"
        more = f" (and {plural(len(bad) - 1, 'other')})" if len(bad) > 1 else ""
        notice(f"warning: invalid reports of {what}{more}: {printable(first.error or '')}")


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
