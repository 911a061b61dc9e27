"""A sweep as a source of jobs for `stoker run`: in the foreground, with its own database."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice

from stoker.cli.output import notice, plural
from stoker.engine.model import JobSpec
from stoker.engine.outcome.retry import Verdict
from stoker.engine.store import job_queries
from stoker.engine.store.database import Database
from stoker.engine.store.submit import Submission, context_id
from stoker.errors import UsageError
from stoker.features.results.reports.reports import (
    JobFiles,
    collect,
    last_logged_error,
    source_of_job,
    sweep_reports,
)
from stoker.features.results.reports.summary import Collector
from stoker.features.results.results_command import print_table
from stoker.features.results.table import Columns, best_first, columns, select_columns
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control.lifecycle import SAME_FAILS, check_search
from stoker.features.sweeps.control.trials import Trials, listed
from stoker.features.sweeps.search.search_client import KnownTrial, SearchClient
from stoker.features.sweeps.spec import spec as specs
from stoker.features.sweeps.spec.identity import identity
from stoker.features.sweeps.spec.spec import ADAPTIVE, SweepSpec
from stoker.features.sweeps.spec.values import Point, point_from_json, point_to_json

_CHUNK = 500
_SHOWN = 20


class SweepSource:
    """Yields jobs for points without a result: in chunks, or as the search proposes them."""

    descriptor = None

    def __init__(
        self,
        db: Database,
        folder: str,
        spec: SweepSpec,
        base: JobSpec,
        max_parallel_jobs: int,
        *,
        retries_failed: bool = False,
    ) -> None:
        if spec.early_stop is not None:
            raise UsageError("early stopping needs the daemon", "use `stoker sweep`")
        self._db = db
        self._places = JobFiles(folder, is_run=True)
        self._max_parallel = spec.max_parallel or max_parallel_jobs
        self._spec, self._sweep = self._save(spec, base)
        self._trials = Trials(db, folder, self._sweep, self._spec, base)
        self._numbers: list[int] = []  # trials that were read but not submitted yet
        self._running: dict[int, int] = {}  # job -> trial
        rows = sweeps.trials(db, self._sweep)
        self._made = self._stored = len(rows)
        self._failed = 0
        self.stopped: str | None = None  # why no more trials should start
        self.skipped = sum(1 for row in rows if row.state == "done")
        # The last kind of failure, and how many times it occurred in a row.
        self._streak: tuple[str, int] = ("", 0)
        self._search: SearchClient | None = None
        known = {row.identity for row in rows}
        if spec.method in ADAPTIVE:
            check_search(spec)
            self._left = None if spec.trials is None else max(0, spec.trials - len(rows))
            self._search = SearchClient(self._spec, self._history())
            requested = {
                row.identity
                for row in rows
                if identity(spec.template, point_from_json(row.point)) == row.identity
            }
        else:
            requested = {key for key, _ in listed(self._spec)}
            self._new = (point for key, point in listed(self._spec) if key not in known)
        # As in `stoker sweep`: a failed trial counts as a result unless --resume is given.
        kept = ("done",) if retries_failed else ("done", "failed")
        again = [
            (row.number, point_from_json(row.point))
            for row in rows
            if row.state not in kept and row.identity in requested
        ]
        self._again: Iterator[tuple[int, Point]] = iter(again)
        self._failed_before = 0 if retries_failed else sum(row.state == "failed" for row in rows)
        self.at_end = False

    def _save(self, spec: SweepSpec, base: JobSpec) -> tuple[SweepSpec, int]:
        """Save the sweep in the database of this folder; return it with its seed, and its id."""
        name = spec.name or "sweep"
        known = sweeps.by_name(self._db, name)
        if known is not None and spec.seed is None:
            spec = spec._replace(seed=specs.from_json(json.loads(known.spec)).seed)
        spec = spec.seeded(name)._replace(name=name)
        with self._db.transaction():
            sweep = sweeps.save(
                self._db,
                name,
                time.time(),
                {
                    "key": "",
                    "spec": json.dumps(spec.to_json()),
                    "base": "{}",
                    "is_driven": 0,
                    "context": context_id(self._db, base.context),
                    "max_parallel": spec.max_parallel,
                    "max_fails": None,
                    "same_fails": None,  # counted here, see `ended`
                },
            )
            sweeps.start_counting(self._db, sweep)
        return spec, sweep

    def _history(self) -> list[KnownTrial]:
        past = []
        for one in sweep_reports(
            self._db, self._places, sweeps.get(self._db, self._spec.name or "")
        ):
            value = one.row.metrics.get(self._spec.metric.name) if self._spec.metric else None
            number = float(value) if isinstance(value, (int, float)) else None
            state = "done" if one.row.state == "done" else "failed"
            past.append(KnownTrial(one.row.trial or 0, one.row.params, state, number))
        return past

    @property
    def is_ready(self) -> bool:
        if self._search is None:
            return not self.at_end
        return not self.at_end and len(self._running) + len(self._numbers) < self._max_parallel

    def read(self) -> list[JobSpec]:
        numbered = list(islice(self._again, _CHUNK))
        if not numbered:
            numbered = list(enumerate(self._more(), self._made + 1))
            self._made += len(numbered)
            if not numbered:
                self.at_end = True
        self._numbers = [number for number, _ in numbered]
        self._points = dict(numbered)
        return [self._trials.job(number, point) for number, point in numbered]

    def _more(self) -> list[Point]:
        if self._search is None:
            return list(islice(self._new, _CHUNK))
        room = self._max_parallel - len(self._running)
        count = room if self._left is None else min(room, self._left)
        proposed = [one.point for one in self._search.ask(count)] if count > 0 else []
        if self._left is not None:
            self._left -= len(proposed)
            self.at_end = self._left <= 0
        return proposed

    def submit(self, submission: Submission, specs: list[JobSpec]) -> None:
        """Add the trials and their jobs in one transaction."""
        with self._db.transaction():
            new = [point for number, point in self._points.items() if number > self._stored]
            made = [(identity(self._spec.template, point), point_to_json(point)) for point in new]
            sweeps.add_trials(self._db, self._sweep, made)
            receipt = submission.insert(specs, time.time())
            pairs = list(zip(self._numbers, receipt.ids, strict=True))
            sweeps.attach(self._db, self._sweep, pairs)
        self._stored += len(made)
        self._running.update((job, number) for number, job in pairs)
        self._numbers = []

    def ended(self, job: int, verdict: Verdict, detail: str | None) -> None:
        """Handle the end of a trial: count failures and send the result to the search."""
        number = self._running.pop(job, None)
        is_done = verdict.event == "succeed"
        self._count(job, verdict, detail)
        if self._search is None or number is None or self._spec.metric is None:
            return
        row = job_queries.job(self._db, job)
        source = source_of_job(row)._replace(is_finished=True)
        stat = collect(self._places, source, Collector()).summary.get(self._spec.metric.name)
        value = stat.last if stat is not None else None
        has_value = is_done and isinstance(value, (int, float))
        self._search.tell(
            number,
            "done" if has_value else "failed",
            float(value) if has_value else None,  # type: ignore[arg-type]
        )

    def _count(self, job: int, verdict: Verdict, detail: str | None) -> None:
        """Count failures like the daemon does in sweeps.trial_ended."""
        if verdict.event == "succeed":
            self._streak = ("", 0)
        if verdict.event not in ("fail", "lose"):
            return
        self._failed += 1
        row = job_queries.job(self._db, job)
        detail = detail or last_logged_error(row.stdout or self._places.log(job, row.attempts))
        how, kind = sweeps.failure(verdict, detail), sweeps.alike(verdict, detail)
        self._streak = (kind, self._streak[1] + 1 if self._streak[0] == kind else 1)
        reason = sweeps.stop_reason(
            how, self._failed, self._spec.max_fails, self._streak[1], SAME_FAILS
        )
        self.stopped = reason or self.stopped
        self.at_end = self.at_end or self.stopped is not None

    def print_results(self) -> None:
        if self._search is not None:
            self._search.close()
        row = sweeps.get(self._db, self._spec.name or "")
        rows = [one.row for one in sweep_reports(self._db, self._places, row)]
        metric = self._spec.metric
        if metric is not None and any(metric.name in one.metrics for one in rows):
            rows = best_first(rows, f"metric.{metric.name}", metric.goal)
            notice(f"best by {metric.words}")
        if any(value is not None for one in rows for value in one.metrics.values()):
            print_table(select_columns(rows[:_SHOWN], columns(rows), Columns(rows)))
        if self._failed_before:
            notice(
                f"{plural(self._failed_before, 'trial')} failed earlier; "
                "to run failed trials again, use --resume"
            )
        more = f" ({len(rows) - _SHOWN} more)" if len(rows) > _SHOWN else ""
        notice(f"results{more}: stoker results {self._places.folder}")
