"""Compare selected runs: parameters, metrics, and where their code came from and ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stoker.client.views.job import environment_json, iso, place_words
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.job_queries import JobRow
from stoker.features.code.views import code_json, machines_json
from stoker.features.results.run_selection import Run, Selection
from stoker.features.results.table import identity, number, ranked
from stoker.features.sweeps.spec.spec import known_goal
from stoker.record import Record
from stoker.states import FINAL
from stoker.text.commands.shell_words import display
from stoker.text.finite_values import finite

MAX_RUNS = 200
DEFAULT_RUNS = 20


class Comparison(Record):
    runs: list[Run]
    jobs: list[JobRow | None]  # of each run; None: the trial has no job
    params: list[Compared]
    metrics: list[Compared]  # last values
    goals: dict[str, str]  # of the metrics of the sweeps; those of other metrics are not known
    code: list[Compared]  # commit, versions, host, GPU, command
    left_off: int  # selected runs that are not compared


def compare_runs(db: Database, selection: Selection, limit: int = DEFAULT_RUNS) -> Comparison:
    """Compare runs, in the order of the selection.

    With more than `limit` runs, those with the best last value of the sweep's metric are compared;
    if no sweep has a metric, the first ones.
    """
    runs = _fewer(selection, limit)
    ids = [run.row.job for run in runs if run.row.job is not None]
    by_id = {job.id: job for job in job_queries.jobs(db, ids)}
    jobs = [by_id.get(run.row.job or 0) for run in runs]
    return Comparison(
        runs=runs,
        jobs=jobs,
        params=compared([run.row.params for run in runs]),
        metrics=_sorted(compared([run.row.metrics for run in runs]), selection),
        goals={metric.name: known_goal(metric) for metric in selection.own_metrics},
        code=compared([{} if job is None else _code(db, job) for job in jobs]),
        left_off=len(selection.runs) - len(runs),
    )


def _fewer(selection: Selection, limit: int) -> list[Run]:
    runs = selection.runs
    if len(runs) <= limit:
        return runs
    if not selection.own_metrics:
        return runs[:limit]
    metric = selection.own_metrics[0]
    values = [run.row.metrics.get(metric.name) for run in runs]
    order = ranked(range(len(runs)), values, metric.goal)
    return [runs[place] for place in sorted(order[:limit])]


def _sorted(lines: list[Compared], selection: Selection) -> list[Compared]:
    """The metrics of the sweeps first."""
    own = {metric.name for metric in selection.own_metrics}
    return sorted(lines, key=lambda line: line.name not in own)


def _code(db: Database, job: JobRow) -> dict[str, object]:
    """What led to the result of a job besides its parameters."""
    code: Mapping[str, object] = code_json(db, job)["code"] or {}
    machine: Mapping[str, object] = machines_json(db, job.id).get(job.attempts) or {}
    found: dict[str, object] = {
        "commit": code.get("commit"),
        "branch": code.get("branch"),
        "dirty": code.get("dirty"),
        "diff_bytes": code.get("diff_bytes") or None,
        "snapshot": job.snapshot,
        "python": machine.get("python"),
        **{
            name: value or None for name, value in environment_json(job.settings.activation).items()
        },
        "backend": job.request.backend or "local",
        "host": machine.get("host") or job.node,
        "gpu": machine.get("gpu_model"),
        "gpus": job.gpus,
        "driver": machine.get("driver"),
        "stoker": machine.get("stoker"),
        "folder": job.cwd,
        "command": display(job.argv, job.shell),
    }
    return found


# -- JSON -----------------------------------------------------------------------------------------


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """The answer of /api/compare, and of `stoker results --compare --json`."""
    pairs = zip(comparison.runs, comparison.jobs, strict=True)
    return {
        "runs": [_run_json(run, job) for run, job in pairs],
        "params": [_line_json(line) for line in comparison.params],
        "metrics": [
            {**_line_json(line), "best": _best(line, comparison.goals)}
            for line in comparison.metrics
        ],
        # A property that no run has says nothing.
        "code": [
            _line_json(line)
            for line in comparison.code
            if any(value is not None for value in line.values)
        ],
        "left_off": comparison.left_off,
    }


def _run_json(run: Run, job: JobRow | None) -> dict[str, object]:
    cause = None
    if job is not None:
        cause = job.cause or (job.attempt_cause if job.state in FINAL else None)
    return {
        "run": run.word,
        "label": run.label,
        "job": run.row.job,
        "sweep": run.sweep,
        "trial": run.row.trial,
        "state": run.row.state,
        "cause": cause,
        "backend": run.backend,
        "place": None if job is None else place_words(job),
        "duration": run.row.seconds,
        "started": iso(run.started_at),
        "ended": None if job is None else iso(job.ended_at),
    }


def _best(line: Compared, goals: dict[str, str]) -> int | None:
    goal = goals.get(line.name)
    return None if goal is None else best_of(line.values, goal)


def _line_json(line: Compared) -> dict[str, object]:
    return {"name": line.name, "values": finite(line.values), "differs": line.differs}


class Compared(Record):
    """A property of runs. None: the run does not have it."""

    name: str
    values: list[object]

    @property
    def differs(self) -> bool:
        """Whether the runs differ; 1 equals 1.0, and a missing value differs from any other."""
        return len({identity(value) for value in self.values}) > 1


def compared(runs: Sequence[dict[str, object]]) -> list[Compared]:
    """The properties of runs, in the order in which they first occur."""
    names = dict.fromkeys(name for run in runs for name in run)
    return [Compared(name, [run.get(name) for run in runs]) for name in names]


def differing(lines: Iterable[Compared]) -> list[Compared]:
    return [line for line in lines if line.differs]


def best_of(values: Sequence[object], goal: str) -> int | None:
    """The position of the best value; None unless two runs have values that differ."""
    known = [place for place, value in enumerate(values) if number(value) is not None]
    if len({values[place] for place in known}) < 2:
        return None
    return ranked(known, [values[place] for place in known], goal)[0]
