"""Sweeps in Python: start or find a sweep and read its results.

    sweep = stoker.sweep("python train.py --lr {lr}", {"lr": [1e-3, 1e-4]}, gpus=1)

    @stoker.job(gpus=1)
    def train(lr: float, seed: int = 0) -> float: ...

    sweep = train.sweep({"lr": "log(1e-5, 1e-1)", "seed": [0, 1, 2]},
                        method="tpe", trials=30, metric="val_loss")
    sweep.wait()
    sweep.best(), sweep.results(), sweep.to_pandas()

Parameters are a mapping: lists are values, strings such as "log(1e-5, 1e-1)" and "range(3)" have
the syntax of the command line, and anything else is a constant. A list of mappings is the union of
their grids. A configuration of GPU Task Scheduler (`{"test_config": [...]}`) works unchanged.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from stoker.errors import UsageError
from stoker.features.notes.python import Annotated
from stoker.python.job import Job

if TYPE_CHECKING:
    from stoker.client.queue import Queue as StoredQueue
    from stoker.features.results.reports.reports import Reported
    from stoker.features.results.table import Row
    from stoker.features.sweeps.spec.spec import SweepSpec
    from stoker.features.sweeps.store import SweepRow
    from stoker.features.sweeps.template.template import Template
    from stoker.python.wait import WaitLine
    from stoker.settings import Settings

Params: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]

# Options of the sweep; all other options are for its jobs.
_SWEEP_OPTIONS = (
    "name",
    "method",
    "trials",
    "seed",
    "metric",
    "early_stop",
    "max_parallel",
    "max_fails",
    "same_fails",
    "lenient",
)


class Sweep(Annotated):
    """A handle of a sweep. Nothing is cached: every property is read from the queue."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self.name = name

    # -- query -------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials by state."""
        from stoker.features.sweeps import store as sweeps

        return sweeps.counts(self._open().db, self._row().id)

    @property
    def stopped(self) -> str | None:
        """Why the sweep was stopped; None if it was not."""
        return self._row().stopped

    def jobs(self) -> list[Job[Any]]:
        """The latest job of each trial."""
        from stoker.features.sweeps import store as sweeps

        rows = sweeps.trials(self._open().db, self._row().id)
        return [Job(self._settings, row.job) for row in rows if row.job is not None]

    def results(self, where: str | None = None, sort: str | None = None) -> list[dict[str, Any]]:
        """Return a dict per trial with its parameters, metrics, state, seconds, trial and job.

        >>> sweep.results(where="lr < 0.01", sort="-acc")        # doctest: +SKIP
        """
        from stoker.features.results import table

        rows = self._rows()
        known = table.Columns(rows)  # of all rows, so that a filter hides no column
        names = table.columns(rows, constants=True)
        if where is not None:
            rows = table.where(rows, where, known)
        if sort is not None:
            rows = table.sort(rows, sort, known=known)
        cells = table.cells(rows, names, known)
        return [dict(zip(names, line, strict=True)) for line in cells]

    def best(self, metric: str | None = None, goal: str | None = None) -> dict[str, Any] | None:
        """Return the row of `results()` with the best last value of `metric`, by default the metric
        of the sweep; None if no trial reported it.

        `goal`: "min" or "max"; by default that of the sweep, or guessed from the name. Raises
        UsageError if there is no metric, or its goal cannot be guessed."""
        from stoker.features.results import table
        from stoker.features.sweeps.spec.spec import known_goal, read_metric

        own = self._spec().metric
        if metric is None:
            if own is None:
                raise UsageError(
                    "the sweep has no metric", 'pass one: best("val_loss") or best("acc", "max")'
                )
            metric = own.name
        if goal is None:
            found = read_metric(metric, () if own is None else (own,))
            goal, metric = known_goal(found, f'pass one: best("{found.name}", "max")'), found.name
        rows = self._rows()
        if not any(metric in row.metrics for row in rows):
            return None
        top = table.best(rows, f"metric.{metric}", goal)
        if top is None:
            return None
        return next(row for row in self.results() if row["trial"] == top.trial)

    def curve(self, trial: int, metric: str) -> list[tuple[float, float]]:
        """Return (step, value) pairs of one metric of one trial."""
        from stoker.features.results.curve_reader import curve_of

        for one in self._reported():
            if one.row.trial == trial:
                return curve_of(self._places(), one.source, metric) if one.source else []
        raise UsageError(f"sweep `{self.name}` has no trial {trial}")

    def report(self, format: str = "md") -> str:
        """Its report as Markdown ("md") or HTML ("html"), as `stoker report` writes it."""
        from stoker.features.results.report_html import html
        from stoker.features.results.report_markdown import markdown
        from stoker.features.results.sweep_report import ReportRequest, sweep_report

        if format not in ("md", "html"):
            raise UsageError(f"unknown format {format!r} of a report", 'use "md" or "html"')
        found = sweep_report(self._open(), self.name, ReportRequest())
        return html(found) if format == "html" else markdown(found)

    def to_pandas(self) -> Any:
        """The results as a pandas.DataFrame."""
        from stoker.features.results import export

        return export.to_pandas(self._rows())

    def to_polars(self) -> Any:
        """The results as a polars.DataFrame."""
        from stoker.features.results import export

        return export.to_polars(self._rows())

    # -- change ------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None, *, progress: bool | None = None) -> bool:
        """Wait until the sweep is complete; return False after `timeout` seconds.

        Meanwhile a terminal and a notebook show progress; `progress=False`: never, True: always.
        """
        from stoker.client.live.change_feed import ChangeFeed

        deadline = None if timeout is None else time.monotonic() + timeout
        changes = ChangeFeed(self._settings.state_dir)
        try:
            with self._line(progress) as line:
                while self._is_open():
                    rest = None if deadline is None else deadline - time.monotonic()
                    if rest is not None and rest <= 0:
                        return False
                    self._open().ensure_daemon()  # trials need a daemon to run
                    line.refresh()
                    changes.wait(rest)
        finally:
            changes.close()
        return True

    def _line(self, progress: bool | None) -> WaitLine:
        from stoker.features.sweeps import store as sweeps
        from stoker.python.wait import WaitLine

        row = self._row()
        planned = self._spec().total_trials if row.is_driven else None
        return WaitLine(
            self._settings, lambda db: sweeps.newest_jobs(db, row.id), progress, planned
        )

    def stop(self, kill: bool = False) -> None:
        """Start no more trials; with `kill`, cancel running trials too."""
        from stoker.features.sweeps.control import lifecycle

        lifecycle.stop(self._open(), self.name, kills=kill)

    def resume(self) -> Sweep:
        """Continue a stopped sweep: run trials that have neither a result nor a job."""
        from stoker.features.sweeps.control import lifecycle

        lifecycle.resume(self._open(), self.name)
        return self

    def extend(self, trials: int) -> Sweep:
        """Add this many trials to a random or adaptive sweep."""
        from stoker.features.sweeps.control import lifecycle

        lifecycle.extend(self._open(), self.name, trials)
        return self

    def rerun(self, trials: Iterable[int] | None = None) -> list[Job[Any]]:
        """Run the trials with these numbers again, by default all failed and lost trials."""
        from stoker.features.sweeps.control import lifecycle

        numbers = None if trials is None else set(trials)
        jobs = lifecycle.rerun(self._open(), self.name, numbers)
        return [Job(self._settings, job) for job in jobs]

    def __repr__(self) -> str:
        from stoker.errors import NotFound

        try:
            return self._described()
        except NotFound:
            return f"<sweep {self.name}: removed>"

    def _described(self) -> str:
        words = ", ".join(f"{count} {state}" for state, count in sorted(self.counts.items()))
        return f"<sweep {self.name}: {words or 'no trials yet'}>"

    def _repr_html_(self) -> str:
        from stoker.features.results import export

        rows = self._rows()
        own = self._spec().metric
        if own is not None and any(own.name in row.metrics for row in rows):
            from stoker.features.results import table

            rows = table.best_first(rows, f"metric.{own.name}", own.goal)
        return export.html(rows)

    # -- inside ------------------------------------------------------------------------------

    def _target(self) -> tuple[StoredQueue, int | str]:
        return self._open(), self.name

    def _open(self) -> StoredQueue:
        from stoker.client.queue_connections import thread_queue

        return thread_queue(self._settings, creates=False)

    def _row(self) -> SweepRow:
        from stoker.features.sweeps import store as sweeps

        return sweeps.get(self._open().db, self.name)

    def _spec(self) -> SweepSpec:
        from stoker.features.sweeps.control import lifecycle

        return lifecycle.load(self._open().db, self.name)[1]

    def _places(self) -> Any:
        from stoker.features.results.reports.reports import JobFiles

        return JobFiles(self._settings.state_dir)

    def _reported(self) -> list[Reported]:
        from stoker.features.results.reports.reports import sweep_reports

        return sweep_reports(self._open().db, self._places(), self._row())

    def _rows(self) -> list[Row]:
        return [one.row for one in self._reported()]

    def _is_open(self) -> bool:
        from stoker.states import ACTIVE, WAITING

        row = self._row()
        counts = self.counts
        if any(counts.get(state) for state in (*WAITING, *ACTIVE)):
            return True
        return bool(row.is_driven) and row.stopped is None


def start(
    settings: Settings,
    what: str | Sequence[str] | Callable[..., Any],
    params: Params,
    options: Mapping[str, Any],
) -> Sweep:
    """Start a sweep of a command, or of a function that takes the parameters as arguments."""
    from stoker.client.queue_connections import thread_queue
    from stoker.client.submit.job_options import NAMES, check_names
    from stoker.client.submit.parsed_options import make_spec, read_options
    from stoker.features.sweeps.control import lifecycle
    from stoker.python.function_arguments import python_for

    check_names(options, (*_SWEEP_OPTIONS, *NAMES), "a sweep")
    own = {key: value for key, value in options.items() if key in _SWEEP_OPTIONS}
    job_options = read_options({k: v for k, v in options.items() if k not in _SWEEP_OPTIONS})
    queue = thread_queue(settings)
    base = make_spec(job_options, settings, queue.devices())
    if base.after or base.begin_at or base.stdout or base.stderr or base.dedupe:
        raise UsageError(
            "after, begin, stdout, stderr and dedupe are options of single jobs",
            "leave them out for a sweep",
        )
    same_fails = own.pop("same_fails", lifecycle.SAME_FAILS)
    if type(same_fails) is not int or same_fails < 0:
        raise UsageError(f"`same_fails` must be an integer, 0 or more, not {same_fails!r}")
    try:
        if callable(what):
            files_dir = queue.files_dir(base.request.backend)
            template = _template_of(files_dir, what, python_for(base))
            spec = _spec_of(template, params, {**own, "lenient": True})
        else:
            spec = _spec_of(_command(what), params, own)
        started = lifecycle.start(queue, spec, base, same_fails)
    except UsageError as error:
        error.hint = _with_keywords(error.hint)
        raise
    if started.metric is not None and started.metric.is_guessed:
        print(f"note: the metric is {started.metric.words}", file=sys.stderr)
    return Sweep(settings, started.name)


def _with_keywords(hint: str | None) -> str | None:
    """A hint for the command line as a hint for Python: `--metric loss` is `metric="loss"`."""
    import re

    def keyword(found: re.Match[str]) -> str:
        value = found[2] if found[2].isdigit() else f'"{found[2]}"'
        return f"{found[1].replace('-', '_')}={value}"

    return hint and re.sub(r"--([a-z][a-z-]*) (\w[\w.:]*)", keyword, hint)


def _command(what: object) -> Template:
    from stoker.client.submit.parsed_options import text_words
    from stoker.features.sweeps.template import template

    if isinstance(what, str):
        return template.shell(what)
    if isinstance(what, Iterable) and not isinstance(what, bytes):
        return template.argv(list(text_words(what)))
    raise UsageError(
        f"{what!r} is neither a command nor a function",
        'sweep("python train.py --lr {lr}", {"lr": [0.1, 0.01]})',
    )


def _spec_of(template: Template, params: Params, own: Mapping[str, Any]) -> SweepSpec:
    from stoker.features.sweeps.files import gpu_task_scheduler_file, keys, toml_file
    from stoker.features.sweeps.spec.spec import Metric, make_spec

    if isinstance(params, Mapping) and ("test_config" in params or "scheduler_config" in params):
        space = gpu_task_scheduler_file.space_from(params)
    else:
        shape: dict[str, object] = {"command": ["-"], "lenient": True}
        if not params and isinstance(params, (Mapping, list, tuple)):
            raise UsageError("a sweep needs a parameter", 'for example {"lr": [0.1, 0.01]}')
        if isinstance(params, Mapping):
            shape["params"] = _plain(params)
        elif isinstance(params, Iterable) and all(isinstance(one, Mapping) for one in params):
            shape["include"] = [_plain(one) for one in params]
        else:
            raise UsageError(
                f"the parameters must be a dict or a list of dicts, not {params!r}",
                'for example {"lr": [0.1, 0.01]}',
            )
        space = toml_file.from_table(shape, os.getcwd()).space
    given = own.get("metric")
    metric = given if given is None or isinstance(given, Metric) else keys.metric(given)
    stop = own.get("early_stop")
    name = own.get("name")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"`name` must be a string, not {name!r}", field="name")
    stop = {"kind": stop} if isinstance(stop, str) else stop
    return make_spec(template, space, **{**own, "metric": metric, "early_stop": stop})


def _plain(params: Mapping[str, Any]) -> dict[str, object]:
    """Convert arrays, tuples and sets to lists, as in a sweep file."""
    found: dict[str, object] = {}
    for name, value in params.items():
        tolist = getattr(value, "tolist", None)  # arrays
        if callable(tolist):
            value = tolist()
        if isinstance(value, (tuple, range, set, frozenset, list)):
            value = [_scalar(part) for part in value]
        found[str(name)] = _scalar(value)
    return found


def _scalar(value: object) -> object:
    """Convert NumPy and PyTorch scalars and paths to plain values, as in a sweep file."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def _template_of(files_dir: str, function: Callable[..., Any], python: str) -> Template:
    """The command that calls a function with the parameters of a trial.

    `files_dir`: the folder for its pickled form; `python`: the interpreter.
    """
    import hashlib

    from stoker.features.sweeps.template.template import argv
    from stoker.functions import call, payload_files
    from stoker.functions.payload import Packer

    packer = Packer(function)
    body = packer.shared + packer.call((), {})
    digest = hashlib.sha256(body).hexdigest()
    # The folder is named after the content, so that repeating a sweep creates no new files.
    folder = payload_files.new_folder(files_dir, digest[:32])
    payload_files.write(folder, payload_files.CALL, [body])
    words = call.words(python, packer.identity, folder, digest, [(0, len(body))])
    return argv([word.replace("{", "{{").replace("}", "}}") for word in words])
