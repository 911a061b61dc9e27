"""`stoker results`: the table of a sweep, or of any jobs that report."""

from __future__ import annotations

import os
import sys

from stoker.cli.open_queue import at_end, open_queue
from stoker.cli.output import notice, plural, print_json, table
from stoker.client.queue import Queue
from stoker.client.reports import JobFiles, Reported, of_jobs, of_sweep
from stoker.core.formats.command_line import Option, Parsed, Verb, count
from stoker.core.formats.durations import format_duration
from stoker.core.formats.terminal import printable
from stoker.errors import NotFound, UsageError
from stoker.results import export
from stoker.results.table import (
    Columns,
    Row,
    Table,
    chosen_of,
    columns,
    grouped,
    sort,
    sort_lines,
    taken,
    where,
)
from stoker.store import job_queries, sweeps
from stoker.store.database import FILE_NAME, Database, open_database
from stoker.sweeps.spec import Metric, SweepSpec

VERB = Verb(
        "results",
        "results [OPTIONS] [SWEEP | JOBS... | FOLDER]",
        "What the trials of a sweep have reported: one row each. Without a word: the newest sweep.",
        (
            Option("-s --sort", "by columns: val_loss, -acc (largest first), lr,-acc", "COLUMNS"),
            Option("-w --where", "only rows where this holds: 'lr < 0.01 and state == \"done\"'",
                   "EXPR", many=True),
            Option("-b --best", "only the best N by the sweep's metric (or --metric)", "N", count),
            Option("-m --metric", "the metric for --best and --group: val_loss or acc:max",
                   "NAME[:GOAL]"),
            Option("-g --group", "mean and spread over rows alike in these: lr,opt", "COLUMNS"),
            Option("-c --columns", "only these columns", "COLUMNS"),
            Option("-a --all", "constant parameters too"),
            Option("-n --limit", "at most so many rows", "N", count),
            Option("--csv", "print CSV"),
            Option("--jsonl", "print JSON lines"),
            Option("--parquet", "write a Parquet file", "FILE"),
            Option("-o --output", "write to this file; .csv, .json, .jsonl, .parquet, .html",
                   "FILE"),
        ),
        (
            ("stoker results brave-otter --sort val_loss", ""),
            ("stoker results brave-otter --best 3", ""),
            ("stoker results brave-otter --group lr --metric val_loss", "over all seeds"),
            ("stoker results brave-otter --where 'lr < 0.01' --csv > table.csv", ""),
            ("stoker results 12-20", "jobs that belong to no sweep"),
        ),
        """A job reports by `stoker.log(val_loss=0.2, step=10)` in Python, by appending such JSON
lines to $STOKER_METRICS, or by printing `stoker: val_loss=0.2 step=10`. The table shows the last
value of each. FOLDER is the log folder of a foreground run.""",
        words="sweeps",
    )  # fmt: skip


def run(parsed: Parsed) -> int:
    _, spec, reported = find_reported(parsed.words)
    rows = [one.row for one in reported]
    if not rows:
        raise NotFound("there is no trial yet", "`stoker sweep ls` shows the sweeps")
    metric = chosen_metric(parsed["metric"], spec)
    known = Columns(rows)  # of all: a filter hides no column
    chosen = columns(rows, constants=bool(parsed["all"]))
    for text in parsed["where"] or ():
        rows = where(rows, text, known)
    if parsed["group"] is not None:
        return _print_groups(rows, known, parsed, metric)
    if parsed["best"] is not None:
        if metric is None:
            raise UsageError("--best needs a metric", "say --metric val_loss or --metric acc:max")
        name = f"metric.{metric.name}"  # a parameter may have the same name
        rows = sort(rows, name, metric.goal == "max", known)[: parsed["best"]]
    if parsed["sort"] is not None:
        rows = sort(rows, parsed["sort"], known=known)
    if parsed["limit"]:
        rows = rows[: parsed["limit"]]
    if parsed["columns"] is not None:
        chosen = _listed(parsed["columns"])
    content = taken(rows, chosen, known)
    if not _written(content, parsed):
        if parsed["json"]:
            print_json(rows=export.records(content))
        else:
            print_table(content)
    if not parsed["json"]:
        _complain(reported)
    return 0


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def find_reported(words: list[str]) -> tuple[JobFiles, SweepSpec | None, list[Reported]]:
    """The sweep, jobs or folder that the words mean, and all that was reported there."""
    if not words:
        queue = open_queue()
        newest = sweeps.all_sweeps(queue.db)
        if not newest:
            raise UsageError("there is no sweep yet", "for jobs: stoker results 3-9")
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
            return places, _spec(row.spec), of_sweep(queue.db, places, row)
    return (
        places,
        None,
        of_jobs(queue.db, places, job_queries.jobs(queue.db, _selected(queue, words))),
    )


def _selected(queue: Queue, words: list[str]) -> list[int]:
    try:
        return queue.select(words)
    except (NotFound, UsageError) as error:
        if len(words) == 1 and words[0].isascii() and not words[0][:1].isdigit():
            name = words[0].removeprefix("sweep:")
            raise NotFound(f"there is no sweep, job or log folder `{name}`",
                           sweeps.near_name(queue.db, name)) from None  # fmt: skip
        raise error


def _of_folder(db: Database, places: JobFiles) -> tuple[JobFiles, SweepSpec | None, list[Reported]]:
    found = sweeps.all_sweeps(db)
    if found:
        return places, _spec(found[0].spec), of_sweep(db, places, found[0])
    jobs = job_queries.page(db, ("done", "failed", "cancelled", "lost", "running"), 10**6)
    return places, None, of_jobs(db, places, jobs)


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
    """Whether it was wanted in one of the forms for other programs, and now is."""
    form, path = _form(parsed)
    if form is None:
        return False
    data = export.export(content, form)
    if path is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return True
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None
    notice(f"{plural(len(content.lines), 'row')} in {printable(path)}")
    return True


def print_table(content: Table) -> None:
    """For people."""
    header, lines = export.text_table(content)
    if "seconds" in header:
        at = header.index("seconds")
        header = (*header[:at], "time", *header[at + 1 :])
        lines = [
            (*line[:at], _time(row[at]), *line[at + 1 :])
            for line, row in zip(lines, content.lines, strict=True)
        ]
    state = header.index("state") if "state" in header else -1
    print(table(tuple(name.upper() if name in _OURS else name for name in header), lines,
                state=state))  # fmt: skip


_OURS = ("trial", "job", "state", "time")


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
            f"`{path}` has no known ending", "use .csv, .json, .jsonl, .parquet or .html"
        )
    return form, path


def _print_groups(
    rows: list[Row], known: Columns, parsed: Parsed, metric: Metric | None
) -> int:  # fmt: skip
    """Groups are rows too: they can be sorted, cut and exported."""
    if metric is None:
        raise UsageError("the mean of what?", "say --metric val_loss")
    if parsed["all"]:
        raise UsageError("--all shows parameters of single trials, and --group has none",
                         "name more columns: --group lr,opt")  # fmt: skip
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
    shown = chosen_of(content, _listed(parsed["columns"])) if parsed["columns"] else content
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


def _complain(reported: list[Reported]) -> None:
    bad = [one for one in reported if one.trouble is not None]
    if bad:
        first = bad[0]
        what = f"trial {first.row.trial}" if first.row.trial is not None else f"job {first.row.job}"
        more = f" (and {plural(len(bad) - 1, 'other')})" if len(bad) > 1 else ""
        notice(
            f"note: some reports of {what}{more} make no sense: {printable(first.trouble or '')}"
        )
