"""What a selection of runs means: job ids, names of sweeps, and SWEEP/TRIAL.

A run is one job, or one trial of a sweep with its newest job. `stoker results A B --compare`,
`stoker plot A B` and the web UI (#/compare?runs=12&runs=lr-search/3) select runs with these words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.errors import NotFound, UsageError
from stoker.features.results.export import short
from stoker.features.results.reports.reports import JobFiles, Reported, job_reports, sweep_reports
from stoker.features.results.reports.summary import Stat
from stoker.features.results.store_run_facts import RunFacts, of_jobs
from stoker.features.results.table import Row, varying
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.spec.spec import Metric, make_metric
from stoker.features.sweeps.store import SweepRow
from stoker.record import Record
from stoker.text.commands.command_params import command_params
from stoker.text.selectors import parse_selector

# For a server. Commands have no limits.
MAX_WORDS = 500
MAX_RUNS = 20_000
MAX_JOBS = 2000  # selected as jobs: their reports are not stored, and read by each new server
_LABEL_CHARS = 80


class Labels(Record):
    """How the runs of a selection are named."""

    params: frozenset[str]  # those that differ
    is_one_sweep: bool


class Run(Record):
    """One job, or one trial of a sweep with its newest job.

    `reported.source` is None if the trial has no job.
    """

    selected_sweep: str | None  # None: it was selected as a job
    sweep: str | None  # that its job belongs to
    backend: str  # `local` is this host
    started_at: float | None  # of its first attempt
    reported: Reported
    labels: Labels

    @property
    def word(self) -> str:
        """Selects exactly this run: `12`, or `lr-search/3`."""
        if self.selected_sweep is None:
            return str(self.row.job)
        return f"{self.selected_sweep}/{self.row.trial}"

    @property
    def label(self) -> str:
        """`trial 3: lr=0.1, seed=2`; `lr-search/3: lr=0.1` among several sweeps; `job 12: name`."""
        row = self.row
        is_job = self.selected_sweep is None
        if is_job:
            head = f"job {row.job}"
        else:
            head = f"trial {row.trial}" if self.labels.is_one_sweep else self.word
        params = [
            f"{key}={short(value)}"
            for key, value in row.params.items()
            if key in self.labels.params
        ]
        name = row.extra.get("name")
        detail = ", ".join(params) or (str(name) if name and is_job else "")
        text = f"{head}: {detail}" if detail else head
        return text if len(text) <= _LABEL_CHARS else text[: _LABEL_CHARS - 1] + "…"

    @property
    def row(self) -> Row:
        return self.reported.row

    @property
    def summary(self) -> dict[str, Stat]:
        return self.reported.summary


class Selection(Record):
    """Runs in the order of the words, each once, and the metrics of the sweeps among them."""

    runs: list[Run]
    own_metrics: tuple[Metric, ...]

    @property
    def metric_names(self) -> list[str]:
        """The metrics that the runs reported, those of their sweeps first."""
        names = dict.fromkeys(name for run in self.runs for name in run.summary)
        own = [metric.name for metric in self.own_metrics if metric.name in names]
        return list(dict.fromkeys((*own, *names)))

    def rows_of(self, runs: list[Run]) -> list[Row]:
        """Runs as rows of a table; if the selection has several sweeps, `sweep` is a column."""
        if len({run.sweep for run in self.runs}) < 2:
            return [run.row for run in runs]
        return [run.row._replace(extra={**run.row.extra, "sweep": run.sweep}) for run in runs]


ReportsOfSweep = Callable[[Database, SweepRow], list[Reported]]
ReportsOfJobs = Callable[[Database, list[int]], list[Reported]]


class RunSelector:
    """Finds the runs of words. A server passes functions that cache the reports."""

    def __init__(
        self,
        db: Database,
        files: JobFiles,
        of_sweep: ReportsOfSweep | None = None,
        of_jobs: ReportsOfJobs | None = None,
        *,
        is_limited: bool = False,
    ) -> None:
        self._db = db
        self._is_limited = is_limited
        self._read_sweep = of_sweep or (lambda db, row: sweep_reports(db, files, row))
        self._sweeps: dict[int, dict[int | None, Reported]] = {}
        self._of_jobs = of_jobs or (
            lambda db, ids: job_reports(db, files, job_queries.jobs(db, ids))
        )

    def select(self, words: Sequence[str]) -> Selection:
        """Raises NotFound for a word that names no run, and UsageError for too many runs."""
        if not words:
            raise UsageError("no runs were selected", "name jobs, sweeps or SWEEP/TRIAL")
        found: dict[object, tuple[str | None, Reported]] = {}
        # The same run may be selected by several words.
        for word in dict.fromkeys(words):
            sweep, reported = self._find(word)
            for one in reported:
                key = one.row.job if one.row.job is not None else (sweep, one.row.trial)
                found.setdefault(key, (sweep, one))
            if self._is_limited and len(found) > MAX_RUNS:
                raise UsageError(
                    f"more than {MAX_RUNS:,} runs are selected", "select trials as SWEEP/TRIAL"
                )
        return self._selection(list(found.values()))

    def jobs(self, ids: list[int]) -> Selection:
        """The runs of these jobs."""
        return self._selection([(None, one) for one in self._of_jobs(self._db, ids)])

    def _selection(self, found: list[tuple[str | None, Reported]]) -> Selection:
        runs = self._runs(found)
        return Selection(runs, self._own_metrics(runs))

    def _own_metrics(self, runs: list[Run]) -> tuple[Metric, ...]:
        metrics: dict[str, Metric] = {}
        for name in dict.fromkeys(run.sweep for run in runs):
            row = None if name is None else sweeps.by_name(self._db, name)
            own = None if row is None else json.loads(row.spec).get("metric")
            if own:
                metrics.setdefault(own["name"], make_metric(own["name"], own["goal"]))
        return tuple(metrics.values())

    def _find(self, word: str) -> tuple[str | None, list[Reported]]:
        """(name of the sweep, runs); the name is None for jobs."""
        text = word.removeprefix("sweep:")
        row = sweeps.by_name(self._db, text)
        if row is not None:
            return row.name, list(self._of_sweep(row).values())
        name, slash, trial = text.rpartition("/")
        row = sweeps.by_name(self._db, name) if slash else None
        if row is not None:
            return row.name, [self._trial(row, trial)]
        try:
            ids = job_queries.select(self._db, parse_selector(word))
        except NotFound as error:
            if word[:1].isdigit():
                raise
            near = sweeps.near_name(self._db, name if slash else text)
            raise NotFound(f"`{word}` is not a sweep, job or SWEEP/TRIAL", near) from error
        if self._is_limited and len(ids) > MAX_JOBS:
            raise UsageError(
                f"`{word}` selects {len(ids):,} jobs; the limit is {MAX_JOBS:,}",
                "select fewer jobs, or a sweep by its name",
            )
        return None, self._of_jobs(self._db, ids)

    def _of_sweep(self, row: SweepRow) -> dict[int | None, Reported]:
        """The trials of a sweep by number, read once for all words."""
        if row.id not in self._sweeps:
            found = self._read_sweep(self._db, row)
            self._sweeps[row.id] = {one.row.trial: one for one in found}
        return self._sweeps[row.id]

    def _trial(self, row: SweepRow, number: str) -> Reported:
        if not (number.isascii() and number.isdigit() and len(number) < 12):
            raise UsageError(
                f"`{number}` is not the number of a trial of sweep {row.name}",
                f"write for example {row.name}/3",
            )
        found = self._of_sweep(row).get(int(number))
        if found is not None:
            return found
        trials = sweeps.count_trials(self._db, row.id)
        raise NotFound(
            f"sweep {row.name} has no trial {number}",
            f"its trials are 1 to {trials}" if trials else "it has no trials yet",
        )

    def _runs(self, found: list[tuple[str | None, Reported]]) -> list[Run]:
        facts = of_jobs(self._db, (one.row.job for _, one in found if one.row.job is not None))
        reported = {metric for _, one in found for metric in one.summary}
        found = [(name, _with_params(one, facts, reported)) for name, one in found]
        labels = Labels(
            params=frozenset(varying([one.row for _, one in found])),
            is_one_sweep=len({name for name, _ in found}) == 1,
        )
        runs = []
        for name, one in found:
            known = facts.get(one.row.job or 0, RunFacts())
            runs.append(
                Run(
                    selected_sweep=name,
                    sweep=name or known.sweep,
                    backend=known.backend,
                    started_at=known.started_at,
                    reported=one,
                    labels=labels,
                )
            )
        return runs


def _with_params(one: Reported, facts: dict[int, RunFacts], metrics: set[str]) -> Reported:
    """A job outside a sweep has the parameters of its command. In `echo stoker: loss=1`, `loss` is
    a metric."""
    known = facts.get(one.row.job or 0)
    if known is None or known.sweep is not None or one.row.params or one.row.trial is not None:
        return one
    params = command_params(known.argv, known.shell)
    if any("stoker:" in word for word in known.argv):
        params = {name: value for name, value in params.items() if name not in metrics}
    return one._replace(row=one.row._replace(params=params))
