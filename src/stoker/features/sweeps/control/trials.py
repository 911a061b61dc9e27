"""Create trials and their jobs for points of a sweep, both in one transaction."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from stoker.engine.model import JobSpec
from stoker.engine.store.database import Database
from stoker.engine.store.submit import CHUNK, Submission
from stoker.features.backends import store as backends
from stoker.features.code.code_gatherer import CodeGatherer
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.spec import methods, names
from stoker.features.sweeps.spec.identity import identity, template_of
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.spec.values import Point, point_from_json, point_to_json
from stoker.features.sweeps.store import TrialRow
from stoker.features.sweeps.store_provenance import trial_codes
from stoker.features.sweeps.template import template
from stoker.testing.failpoints import failpoint

T = TypeVar("T")


class Trials:
    """Adds trials to one sweep, and creates new jobs for existing trials."""

    def __init__(
        self, db: Database, state_dir: str, sweep: int, spec: SweepSpec, base: JobSpec
    ) -> None:
        assert spec.name is not None
        self._db = db
        self._sweep = sweep
        self._spec = spec
        self._base = base
        self._name = spec.name
        # On a backend with a folder of its own, the nodes do not see the state folder.
        files = backends.files_dir(db, base.request.backend) or state_dir
        self._folder = sweep_folder(files, sweep, spec.name)
        self._code = CodeGatherer()

    def add(self, points: list[Point]) -> list[int]:
        """Add trials and their jobs in one transaction; returns the ids of the jobs."""
        submission = self._submission()
        with self._db.transaction():
            made = {identity(self._spec.template, point): point for point in points}
            # Another client may have submitted the same sweep at the same time.
            known = sweeps.among(self._db, self._sweep, made)
            new = {key: point for key, point in made.items() if key not in known}
            first = sweeps.add_trials(
                self._db, self._sweep, [(key, point_to_json(point)) for key, point in new.items()]
            )
            numbers = list(range(first, first + len(new)))
            new_jobs = [self.job(*one) for one in enumerate(new.values(), first)]
            jobs = self._insert(submission, numbers, new_jobs)
            failpoint("sweep.before_commit")
        failpoint("sweep.after_commit")
        return jobs

    def run_again(self, rows: Iterable[TrialRow]) -> list[int]:
        """Create new jobs for trials, except those that another client has just run again."""
        jobs = []
        for chunk in chunks(rows):
            submission = self._submission()
            with self._db.transaction():
                same = [
                    row
                    for row in chunk
                    if sweeps.current(self._db, self._sweep, row.number) == (row.job, row.state)
                ]
                numbers = [row.number for row in same]
                jobs += self._insert(submission, numbers, [self.job_of(row) for row in same])
        return jobs

    def _submission(self) -> Submission:
        """A submit of jobs in the folder of the sweep; call this before the transaction."""
        words = self._spec.template.words
        submission = Submission(self._db, code_of=lambda one: self._code.of_command(one, words))
        submission.gather_code([self._base])
        return submission

    def other_code(self) -> list[int]:
        """The trials that ran with other code than one that would be added now."""
        base = self._base
        code = self._code.of_command(base.context, self._spec.template.words)
        return trial_codes(self._db, self._sweep, code, base.snapshot).others

    def _insert(self, submission: Submission, numbers: list[int], jobs: list[JobSpec]) -> list[int]:
        receipt = submission.insert(jobs, time.time())
        sweeps.attach(self._db, self._sweep, zip(numbers, receipt.ids, strict=True))
        return receipt.ids

    def job_of(self, row: TrialRow, *, is_real: bool = True) -> JobSpec:
        """The job for an existing trial, with the command that the trial was created for."""
        point = point_from_json(row.point)
        known = (self._spec.template, *self._spec.earlier)
        own = template_of(known, point, row.identity)
        return self.job(row.number, point, own, is_real=is_real)

    def job(
        self,
        number: int,
        point: Point,
        command: template.Template | None = None,
        *,
        is_real: bool = True,
    ) -> JobSpec:
        """The job for one trial. `is_real=False` creates no files, for previews."""
        command = command or self._spec.template
        folder = os.path.join(self._folder, str(number))
        rendered = command.render(point, number, folder)
        if command.wants_file and is_real:
            os.makedirs(folder, 0o700, exist_ok=True)
            with open(os.path.join(folder, template.PARAMS_FILE), "w", encoding="utf-8") as file:
                json.dump({key: value.data for key, value in point.items()}, file)
        variables = template.variables(point) | {
            "STOKER_SWEEP": self._name,
            "STOKER_TRIAL": str(number),
            "STOKER_OUTPUT_DIR": folder,
            "STOKER_CHECKPOINT_DIR": os.path.join(folder, "checkpoints"),
        }
        if self._spec.metric is not None:
            variables["STOKER_METRIC"] = self._spec.metric.name
        return self._base._replace(
            argv=rendered.argv,
            shell=rendered.shell,
            name=f"{self._name}/{number}",
            sweep=self._sweep,
            fair_share_group=sweeps.sweep_group(self._name),
            variables=tuple(variables.items()),
        )


def listed(spec: SweepSpec) -> Iterator[tuple[str, Point]]:
    """The points that the method of the sweep enumerates, each with its identity."""
    for point in methods.points(spec):
        yield identity(spec.template, point), point


def sweep_folder(files: str, sweep: int, name: str) -> str:
    """The folder that holds one folder per trial; all jobs of a trial share it.

    Its name contains the id of the sweep, so that a later sweep of the same name does not use it.
    """
    return os.path.join(files, "sweeps", f"{names.check(name)}.{sweep}")


def is_missing(row: TrialRow) -> bool:
    """Whether the trial has no result and no job that will produce one."""
    if row.cause == "stopped_early":
        return False  # early stopping is a result
    return row.state in (None, "cancelled", "lost")


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """Split a large sweep into parts for one transaction each, so as not to block the daemon."""
    walk = iter(items)
    while chunk := list(islice(walk, CHUNK)):
        yield chunk
