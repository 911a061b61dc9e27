"""`stoker results`: the results of a sweep or of other jobs, as a table."""

from __future__ import annotations

import os
import sys

from stoker.cli.open_queue import at_end, open_queue
from stoker.cli.output import notice, plural, print_json, table
from stoker.client.queue import Queue
from stoker.client.reports import JobFiles, Reported, job_reports, sweep_reports
from stoker.core.formats.command_line import Option, Parsed, Verb, count
from stoker.core.formats.durations import format_duration
from stoker.core.formats.terminal import printable
from stoker.errors import NotFound, UsageError
from stoker.results import export
from stoker.results.table import (
    Columns,
    Row,
    Table,
    columns,
    grouped,
    select_columns,
    select_from_table,
    sort,
    sort_lines,
    where,
)
from stoker.store import job_queries, sweeps
from stoker.store.database import FILE_NAME, Database, open_database
from stoker.sweeps.spec import Metric, SweepSpec

VERB = Verb(
        "results",
        "results [OPTIONS] [SWEEP | JOBS... | FOLDER]",
        "Show the metrics of each trial of a sweep. Without arguments: the newest sweep.",
        (
            Option("-s --sort", "sort by columns: val_loss, -acc (largest first), lr,-acc",
                   "COLUMNS"),
            Option("-w --where", "show only matching rows: 'lr < 0.01 and state == \"done\"'",
                   "EXPR", many=True),
            Option("-b --best", "show the best N trials by the sweep's metric (or --metric)", "N",
                   count),
            Option("-m --metric", "the metric for --best and --group: val_loss or acc:max",
                   "NAME[:GOAL]"),
            Option("-g --group", "mean and standard deviation over rows with equal values of"
                   " lr,opt", "COLUMNS"),
            Option("-c --columns", "show only these columns", "COLUMNS"),
            Option("-a --all", "also show parameters that are equal in all trials"),
            Option("-n --limit", "show at most N rows", "N", count),
            Option("--csv", "print CSV"),
            Option("--jsonl", "print JSON lines"),
            Option("--parquet", "write a Parquet file", "FILE"),
            Option("-o --output", "write to a .csv, .json, .jsonl, .parquet or .html file",
                   "FILE"),
        ),
        (
            ("stoker results brave-otter --sort val_loss", ""),
            ("stoker results brave-otter --best 3", ""),
            ("stoker results brave-otter --group lr --metric val_loss", "average over seeds"),
            ("stoker results brave-otter --where 'lr < 0.01' --csv > table.csv", ""),
            ("stoker results 12-20", "jobs outside a sweep"),
        ),
        """A job reports metrics with `stoker.log(val_loss=0.2, step=10)` in Python, by appending
JSON lines to $STOKER_METRICS, or by printing `stoker: val_loss=0.2 step=10`. The table shows the
last value of each metric. FOLDER is the log folder of `stoker run`.""",
        words="sweeps",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    _, spec, reported = find_reported(parsed.words, "results")
    rows = [one.row for one in reported]
    if not rows:
        raise NotFound("there are no trials yet", "list the sweeps with: stoker sweep ls")
    metric = chosen_metric(parsed["metric"], spec)
    known = Columns(rows)  # of all rows, so that a filter hides no column
    chosen = columns(rows, constants=bool(parsed["all"]))
    for text in parsed["where"] or ():
        rows = where(rows, text, known)
    if parsed["group"] is not None:
        return _print_groups(rows, known, parsed, metric)
    if parsed["best"] is not None:
        if metric is None:
            raise UsageError("`--best` needs a metric", "add --metric val_loss or --metric acc:max")
        name = f"metric.{metric.name}"  # a parameter may have the same name
        rows = sort(rows, name, metric.goal == "max", known)[: parsed["best"]]
    if parsed["sort"] is not None:
        rows = sort(rows, parsed["sort"], known=known)
    if parsed["limit"]:
        rows = rows[: parsed["limit"]]
    if parsed["columns"] is not None:
        chosen = _listed(parsed["columns"])
    content = select_columns(rows, chosen, known)
    if not _written(content, parsed):
        if parsed["json"]:
            print_json(rows=export.records(content))
        else:
            print_table(content)
    if not parsed["json"]:
        _warn_about_bad_reports(reported)
    return 0


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def find_reported(words: list[str], verb: str) -> tuple[JobFiles, SweepSpec | None, list[Reported]]:
    """Find the sweep, jobs or log folder given on the command line, and load their reports.

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
    if len(words) == 1 and os.path.isfile(os.path.join(words[0], FILE_NAME)):
        folder = os.path.abspath(words[0])
        db = open_database(folder)
        at_end(db.close)
        return _of_folder(db, JobFiles(folder, is_run=True))
    queue = open_queue()
    places = JobFiles(queue.settings.state_dir)
    if len(words) == 1:
        row = sweeps.by_name(queue.db, words[0].removeprefix("sweep:"))
        if row is not None:
            return places, _spec(row.spec), sweep_reports(queue.db, places, row)
    return (
        places,
        None,
        job_reports(queue.db, places, job_queries.jobs(queue.db, _selected(queue, words))),
    )


def _selected(queue: Queue, words: list[str]) -> list[int]:
    try:
        return queue.select(words)
    except (NotFound, UsageError) as error:
        if len(words) == 1 and words[0].isascii() and not words[0][:1].isdigit():
            name = words[0].removeprefix("sweep:")
            raise NotFound(
                f"`{name}` is not a sweep, job or log folder", sweeps.near_name(queue.db, name)
            ) from None
        raise error


def _of_folder(db: Database, places: JobFiles) -> tuple[JobFiles, SweepSpec | None, list[Reported]]:
    found = sweeps.all_sweeps(db)
    if found:
        return places, _spec(found[0].spec), sweep_reports(db, places, found[0])
    jobs = job_queries.jobs_in_states(db, ("done", "failed", "cancelled", "lost", "running"), 10**6)
    return places, None, job_reports(db, places, jobs)


def _spec(text: str) -> SweepSpec:
    import json

    from stoker.sweeps.spec import from_json

    return from_json(json.loads(text))


def chosen_metric(text: str | None, spec: SweepSpec | None) -> Metric | None:
    from stoker.sweeps.spec import read_metric

    own = spec.metric if spec is not None else None
    if text is None:
        return own
    return read_metric(text, own.goal if own is not None and own.name == text else "min")


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


def _print_groups(
    rows: list[Row], known: Columns, parsed: Parsed, metric: Metric | None
) -> int:  # fmt: skip
    """Group the rows; groups can be sorted, limited and exported like rows."""
    if metric is None:
        raise UsageError("`--group` needs a metric", "add --metric val_loss")
    if parsed["all"]:
        raise UsageError(
            "`--all` cannot be combined with `--group`, which shows no single trials",
            "group by more columns: --group lr,opt",
        )
    content = grouped(rows, _listed(parsed["group"]), f"metric.{metric.name}", known)
    mean = content.names[-5]
    if parsed["best"] is not None or parsed["sort"] is None:
        content = sort_lines(content, f"{mean}:{'desc' if metric.goal == 'max' else 'asc'}")
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
        print_json(metric=metric.name, groups=export.records(shown))
    elif parsed["columns"] is not None:
        print_table(shown)
    else:
        header, lines = export.text_table(content)
        print(table((*header[:-6], "N", f"{metric.name} MEAN", "SD", "MIN", "MAX"),
                    [line[:-1] for line in lines]))  # fmt: skip
    return 0


def _warn_about_bad_reports(reported: list[Reported]) -> None:
    bad = [one for one in reported if one.error is not None]
    if bad:
        first = bad[0]
        what = f"trial {first.row.trial}" if first.row.trial is not None else f"job {first.row.job}"
        more = f" (and {plural(len(bad) - 1, 'other')})" if len(bad) > 1 else ""
        notice(f"warning: invalid reports of {what}{more}: {printable(first.error or '')}")
