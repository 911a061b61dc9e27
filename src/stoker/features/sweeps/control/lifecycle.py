"""Start, repeat, extend, add values, stop, resume, rerun and remove sweeps.

A sweep is identified by its name, or by its command and folder; a trial by its parameters and
command. Starting the same sweep again therefore adds only new points and runs only trials that no
longer have a job.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from stoker.client.queue import Queue
from stoker.engine.job_settings import settings_of
from stoker.engine.model import Context, JobSpec, Request
from stoker.engine.snapshot_context import WISHES, original_folder
from stoker.engine.store import contexts, submit_tokens
from stoker.engine.store.database import Database
from stoker.engine.store.submit import context_id, take_ids
from stoker.errors import Conflict, Unavailable, UsageError
from stoker.features.backends import store as backends
from stoker.features.code import store_snapshots as snapshots
from stoker.features.code.snapshot_store import Snapshot
from stoker.features.notes import store as notes
from stoker.features.results.reports.reports import JobFiles, has_stop
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control.trials import Trials, chunks, is_missing, listed, sweep_folder
from stoker.features.sweeps.spec import methods, names, spec
from stoker.features.sweeps.spec.added_values import (
    extend_problem,
    make_point,
    values_problem,
    with_point,
    with_values,
)
from stoker.features.sweeps.spec.identity import identity, meaning
from stoker.features.sweeps.spec.search_space import Axis
from stoker.features.sweeps.spec.spec import (
    ADAPTIVE,
    KILL_AFTER,
    MAX_TRIALS,
    Metric,
    SweepSpec,
    stop_seconds,
)
from stoker.features.sweeps.spec.values import Point, point_from_json
from stoker.features.sweeps.store import SweepRow, TrialRow
from stoker.features.sweeps.template.template import Template
from stoker.fields import from_fields
from stoker.record import Record
from stoker.states import ACTIVE, FINAL, RUNNING, STARTING, SUBMITTED, WAITING
from stoker.testing.failpoints import failpoint
from stoker.text.plurals import plural, plural_word
from stoker.text.selectors import id_ranges

# Stop a sweep after this many equal failures: a bug in the program would fail all other trials too.
SAME_FAILS = 5
SEARCH_PYTHON = "search_python"  # in the stored options of the jobs of a sweep
_MAX_INCLUDED = 1000
_STOPPABLE = (SUBMITTED, STARTING, RUNNING)
_MAX_EARLIER = 50  # a notebook creates a new function each time a cell runs
# Fields of JobSpec that differ between the jobs of a sweep, or that the sweep sets itself.
_OF_ONE_JOB = (
    "argv", "context", "shell", "request", "name", "after", "begin_at", "stdout", "stderr",
    "dedupe", "variables", "sweep", "fair_share_group", "array", "array_index",
)  # fmt: skip
_OF_BASE = tuple(field for field in JobSpec._fields if field not in _OF_ONE_JOB)


class Started(Record):
    """The result of starting a sweep."""

    name: str
    is_new: bool
    added: int  # number of new trials
    jobs: tuple[int, ...]  # jobs submitted for new and for missing trials
    counts: dict[str, int]  # number of all its trials by state
    started_daemon: bool
    listed: int | None = None  # number of requested points; None for adaptive search
    metric: Metric | None = None  # with the goal that the sweep has recorded
    other_code: tuple[int, ...] = ()  # trials that ran with other code than the new ones


class SweepPreview(Record):
    """What starting a sweep would do, for --dry-run."""

    name: str
    known: SweepRow | None
    spec: SweepSpec
    new: list[Point]
    missing: list[TrialRow]
    listed: int | None = None  # number of requested points; None for adaptive search


def start(
    queue: Queue,
    given: SweepSpec,
    base: JobSpec,
    same_fails: int = SAME_FAILS,
    *,
    is_suggested: bool = False,
    on_progress: Callable[[int], None] | None = None,
    token: str | None = None,
    change: Callable[[SweepSpec], SweepSpec] | None = None,
    only_new: bool = False,
) -> Started:
    """Submit a job for every point that has neither a result nor a job.

    `is_suggested` means that the name was derived from a file name: the same file name in another
    folder is then another sweep. `on_progress` is called with the number of points submitted so
    far. Calls with the same `token` report the same jobs. `change` makes the new definition from
    the one that is stored at this moment, so that two changes at a time are not lost. With
    `only_new`, trials that were cancelled or lost do not run again, and a stopped search stays
    stopped. Raises UsageError, Conflict or Unavailable before anything is written.
    """
    db, state_dir = queue.db, queue.settings.state_dir
    check_search(given)
    is_adaptive = given.method in ADAPTIVE
    if not is_adaptive:
        methods.points(given.seeded(""))  # raises if the points cannot be enumerated
    try:
        base, taken = _in_snapshot(queue, base)
        with db.transaction():
            known, name, given = _find_sweep(db, given, base.context, is_suggested)
            if change is not None:
                given = spec.from_json(json.loads(sweeps.get(db, name).spec))
                if token is None or submit_tokens.receipt(db, token, 0) is None:
                    given = change(given)
            sweep = sweeps.save(db, name, time.time(), _columns(db, given, base, same_fails))
            if taken is not None:
                snapshots.save(db, taken, time.time())
            sweeps.start_counting(db, sweep, goes_on=not (only_new and is_adaptive))
            before_token = None if token is None else _before_token(db, token, sweep, known is None)
            failpoint("sweep.before_commit")
    finally:
        queue.release_snapshots()
    rows = sweeps.trials(db, sweep)
    trials = Trials(db, state_dir, sweep, given, base)
    new: list[int] = []
    again: list[int] = []
    started_daemon = False
    try:
        if is_adaptive:
            requested = {
                row.identity
                for row in rows
                if identity(given.template, point_from_json(row.point)) == row.identity
            }
            before = {row.identity for row in rows}
            included = {identity(given.template, point): point for point in _included(known, given)}
            fresh = [point for key, point in included.items() if key not in before]
            new += trials.add(fresh) if fresh else []
        else:
            requested = set()
            before = {row.identity for row in rows}
            for chunk in chunks(listed(given)):
                requested.update(key for key, _ in chunk)
                fresh = [point for key, point in chunk if key not in before]
                new += trials.add(fresh) if fresh else []
                if on_progress is not None:
                    on_progress(len(requested))
        if not only_new:
            again = trials.run_again(
                row for row in rows if is_missing(row) and row.identity in requested
            )
        if _is_driven(given) and not is_adaptive:
            with db.transaction():  # only now: the driver would end a sweep without trials
                sweeps.set_driven(db, sweep)
    finally:  # jobs that are already queued run, even after Ctrl-C
        if (new or again or is_adaptive) and not base.held:
            started_daemon = queue.ensure_daemon()
    jobs: tuple[int, ...] = (*new, *again)
    added, is_new = len(new), known is None
    if before_token is not None:
        jobs = tuple(sweeps.jobs_from(db, sweep, before_token["next_job"]))
        added = sweeps.count_trials(db, sweep) - before_token["trials"]
        is_new = before_token["is_new"]
    return Started(
        name=name,
        is_new=is_new,
        added=added,
        jobs=jobs,
        counts=sweeps.counts(db, sweep),
        started_daemon=started_daemon,
        listed=None if is_adaptive else len(requested),
        metric=given.metric,
        other_code=() if known is None else tuple(trials.other_code()),
    )


def _in_snapshot(queue: Queue, base: JobSpec) -> tuple[JobSpec, Snapshot | None]:
    """The jobs of a sweep in a snapshot, if they wish for one: all its trials share it."""
    if base.snapshot not in WISHES:
        return base, None
    base = queue.snapshots.take_one(base)
    return base, None if base.snapshot is None else queue.snapshots.taken(base.snapshot)


def _before_token(db: Database, token: str, sweep: int, is_new: bool) -> dict[str, Any]:
    """What the sweep had before the first call with this token."""
    known = submit_tokens.receipt(db, token, 0)
    if known is None:
        next_job = take_ids(db, 0)
        known = {"next_job": next_job, "trials": sweeps.count_trials(db, sweep), "is_new": is_new}
        submit_tokens.save_receipt(db, token, 0, known, time.time())
    return known


def preview(
    queue: Queue, given: SweepSpec, base: JobSpec, *, is_suggested: bool = False
) -> SweepPreview:
    """Return what `start` would do, without any change."""
    known, name, given = _find_sweep(queue.db, given, base.context, is_suggested)
    rows = sweeps.trials(queue.db, known.id) if known is not None else []
    if given.method in ADAPTIVE:
        before = {row.identity for row in rows}
        new = [p for p in _included(known, given) if identity(given.template, p) not in before]
        return SweepPreview(name, known, given, new, [row for row in rows if is_missing(row)])
    points = dict(listed(given))
    before = {row.identity for row in rows}
    missing = [row for row in rows if is_missing(row) and row.identity in points]
    new = [point for key, point in points.items() if key not in before]
    return SweepPreview(name, known, given, new, missing, len(points))


def count_new(queue: Queue, given: SweepSpec, base: JobSpec, *, is_suggested: bool = False) -> int:
    """About how many trials `start` would add; 0 if they were counted, as for adaptive search."""
    if given.method in ADAPTIVE or given.trials is not None:
        return 0
    known = _find_sweep(queue.db, given, base.context, is_suggested)[0]
    before = 0 if known is None else sweeps.count_trials(queue.db, known.id)
    return max(0, (given.space.size.points or 0) - before)


def _included(known: SweepRow | None, given: SweepSpec) -> Iterator[Point]:
    """Yield the added points, and those of new finite [[include]] tables, in an adaptive sweep.

    The search might never propose them, although the user listed them explicitly.
    """
    if known is None:
        return
    yield from given.points
    before = spec.from_json(json.loads(known.spec)).space.grids
    for grid in given.space.grids[1:]:
        alone = given.space._replace(grids=(grid,))
        size = alone.size.points
        if grid not in before and size is not None and size <= _MAX_INCLUDED:
            yield from methods.points(
                given._replace(space=alone, method="grid", trials=None, points=())
            )


def check_search(given: SweepSpec) -> None:
    """Raise Unavailable if the method needs a package that is not installed.

    Checked here because errors of the sweep driver are easily missed.
    """
    import importlib.util

    needs = ["optuna"] if given.method in ADAPTIVE or given.early_stop is not None else []
    needs += {"cmaes": ["cmaes"], "gp": ["scipy", "torch"]}.get(given.method, [])
    missing = [package for package in needs if importlib.util.find_spec(package) is None]
    if not missing:
        return
    what = (
        "adaptive search and early stopping need"
        if missing == ["optuna"]
        else f"the method {given.method} needs"
    )
    extras = ["'stoker[search]'"] if {"optuna", "cmaes"}.intersection(missing) else []
    others = [package for package in missing if package in ("scipy", "torch")]
    packages = f"{plural_word(len(missing), 'package')} {' and '.join(missing)}"
    raise Unavailable(
        f"{what} the {packages}, which {'are' if len(missing) > 1 else 'is'} not installed",
        f"pip install {' '.join([*extras, *others])}",
    )


def early_stop_hint(given: SweepSpec) -> str | None:
    """A hint how programs take part in early stopping; None if it is not needed."""
    if given.early_stop is None or stop_seconds(given) is not None:
        return None
    kind = given.early_stop["kind"]
    return (
        "for early stopping, the program must check stoker.should_stop() or the file "
        f"$STOKER_STOP_FILE; to kill trials that do not: --early-stop {kind},{KILL_AFTER}=60"
    )


def trials_ignoring_stop(state_dir: str, trials: Iterable[TrialRow]) -> list[int]:
    """The jobs of trials that were asked to stop early and still run."""
    files = JobFiles(state_dir)
    return [
        trial.job
        for trial in trials
        if trial.state == "running" and trial.job is not None and has_stop(files, trial)
    ]


def extend(
    queue: Queue,
    name: str,
    trials: int,
    on_progress: Callable[[int], None] | None = None,
    *,
    expected: int | None = None,
    token: str | None = None,
) -> Started:
    """Add this many trials to a random or adaptive sweep. Raises Conflict for other sweeps.

    `expected`: the number of trials that the caller believes it has. Raises Conflict if it has
    another one, so that a repeated request does not extend the sweep twice; nor does one with the
    same `token`.
    """
    row, given, base = load(queue.db, name)

    def extended(now: SweepSpec) -> SweepSpec:
        problem = extend_problem(now)
        if problem is not None:
            raise Conflict(f"cannot extend `{name}`: it {problem.reason}", problem.hint)
        assert now.trials is not None
        if expected is not None and now.total_trials != expected:
            raise Conflict(
                f"`{name}` has {now.total_trials} trials, not {expected}: it was changed meanwhile",
                "look at the sweep again before you extend it",
            )
        more = now.more + trials
        if now.trials + more > MAX_TRIALS:
            raise UsageError(
                f"`{name}` would have {now.trials + more:,} trials; the limit is {MAX_TRIALS:,}"
            )
        return now._replace(more=more)

    if token is None or submit_tokens.receipt(queue.db, token, 0) is None:
        extended(given)  # raises before the daemon or a search is needed
    named = given._replace(name=name)
    return start(
        queue,
        named,
        base,
        row.same_fails or 0,
        on_progress=on_progress,
        change=extended,
        token=token,
    )


def add_values(
    queue: Queue,
    name: str,
    added: Sequence[Axis],
    *,
    is_point: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Started:
    """Add values of parameters, or one point, to a sweep, and run only what is new.

    Trials that exist keep their numbers and do not run again. The new definition is stored in one
    transaction before the first trial, so repeating the call after a crash adds the rest; a call
    that adds nothing new changes nothing. Raises Conflict if the method does not list its points.
    """
    row, given, base = load(queue.db, name)
    change = partial(_with_added, queue.db, row.id, added=added, is_point=is_point)
    change(given)
    named = given._replace(name=name)
    return start(
        queue,
        named,
        base,
        row.same_fails or 0,
        on_progress=on_progress,
        change=change,
        only_new=True,
    )


def preview_added(
    queue: Queue, name: str, added: Sequence[Axis], *, is_point: bool = False
) -> SweepPreview:
    """Return what `add_values` would do, without any change; `missing` is not run by it."""
    row, given, base = load(queue.db, name)
    changed = _with_added(queue.db, row.id, given, added=added, is_point=is_point)
    return preview(queue, changed._replace(name=name), base)


def _with_added(
    db: Database, sweep: int, given: SweepSpec, *, added: Sequence[Axis], is_point: bool
) -> SweepSpec:
    if is_point:
        point = make_point(given.space, added)
        if identity(given.template, point) in sweeps.identities(db, sweep):
            return given
        return with_point(given, added)
    problem = values_problem(given)
    if problem is not None:
        raise Conflict(f"cannot add values to `{given.name}`: it {problem.reason}", problem.hint)
    return with_values(given, added)


def stop(queue: Queue, name: str, *, kills: bool = False) -> tuple[int, int]:
    """Start no more trials. Returns the numbers of waiting trials that were cancelled, and of
    running trials that are being cancelled (with `kills`)."""
    row = sweeps.get(queue.db, name)
    with queue.db.transaction():
        ended = sweeps.stop(queue.db, row.id, "stopped by the user", time.time())
    running = sweeps.jobs(queue.db, row.id, _STOPPABLE) if kills else []
    cancelled = queue.cancel(running)[1] if running else 0
    queue.wake_daemon()
    return ended, cancelled


def resume(queue: Queue, name: str, on_progress: Callable[[int], None] | None = None) -> Started:
    """Continue a stopped sweep: run the trials that have neither a result nor a job."""
    row, given, base = load(queue.db, name)
    named = given._replace(name=name)
    return start(queue, named, base, row.same_fails or 0, on_progress=on_progress)


def rerun(queue: Queue, name: str, numbers: set[int] | None = None) -> list[int]:
    """Run failed and lost trials again, or the trials with these numbers; return the jobs."""
    row, given, base = load(queue.db, name)
    rows = sweeps.trials(queue.db, row.id)
    if numbers is None:
        chosen = [trial for trial in rows if trial.state in ("failed", "lost")]
    else:
        unknown = numbers.difference(trial.number for trial in rows)
        if unknown:
            raise UsageError(f"sweep `{name}` has no trial {min(unknown)}")
        chosen = [trial for trial in rows if trial.number in numbers]
        for trial in chosen:
            if trial.state in (*WAITING, *ACTIVE):
                raise Conflict(f"trial {trial.number} is already {trial.state}")
    with queue.db.transaction():
        # Rerunning a trial must not resume a stopped search.
        sweeps.start_counting(queue.db, row.id, goes_on=given.method not in ADAPTIVE)
        if _is_driven(given) and given.method not in ADAPTIVE:
            sweeps.set_driven(queue.db, row.id)
    trials = Trials(queue.db, queue.settings.state_dir, row.id, given._replace(name=name), base)
    jobs = trials.run_again(chosen)
    if jobs and not base.held:
        queue.ensure_daemon()
    return jobs


def remove(queue: Queue, name: str, *, with_jobs: bool = False) -> int:
    """Remove a sweep, and with `with_jobs` its jobs and logs; return the number of removed jobs.

    Raises Conflict while trials wait or run.
    """
    row = sweeps.get(queue.db, name)
    check_removable(queue, row)
    jobs = sweeps.jobs(queue.db, row.id, FINAL)
    marked = notes.marked_jobs(queue.db, jobs, of_sweeps=False) if with_jobs else ()
    if marked:
        raise Conflict(
            f"{plural(len(marked), 'job')} of `{name}` {'has' if len(marked) == 1 else 'have'} a"
            f" star or a note: {', '.join(id_ranges(sorted(marked)))}",
            f"to keep the jobs: stoker sweep rm {name}; else remove stars and notes first",
        )
    with queue.db.transaction():
        sweeps.remove(queue.db, row.id)
    if not with_jobs:
        return 0
    import shutil

    for folder in (queue.settings.state_dir, *backends.folders(queue.db)):
        shutil.rmtree(sweep_folder(folder, row.id, name), ignore_errors=True)
    return len(queue.remove(jobs))


def check_removable(queue: Queue, row: SweepRow) -> None:
    """Raise Conflict while trials of the sweep wait or run."""
    active = sweeps.jobs(queue.db, row.id, (*WAITING, *ACTIVE))
    if active:
        raise Conflict(
            f"{len(active)} trials of `{row.name}` have not finished",
            f"stop them with: stoker sweep stop --kill {row.name}",
        )


def load(db: Database, name: str) -> tuple[SweepRow, SweepSpec, JobSpec]:
    """Load a sweep: its row, its spec, and the common options of its jobs."""
    row = sweeps.get(db, name)
    return row, spec.from_json(json.loads(row.spec)), _base(db, row)


# -- identity of a sweep ---------------------------------------------------------------------------


def _find_sweep(
    db: Database, given: SweepSpec, context: Context, is_suggested: bool
) -> tuple[SweepRow | None, str, SweepSpec]:
    """Return the existing sweep or None, its name, and the spec with its seed."""
    if given.name is None:
        known = sweeps.by_key(db, key_of(given, context))
    else:
        names.check(given.name)
        known = sweeps.by_name(db, given.name)
        count = 1
        while (
            is_suggested and known is not None and _folder_of(db, known) != original_folder(context)
        ):
            count += 1
            known = sweeps.by_name(db, f"{given.name}-{count}")
        if count > 1:
            given = given._replace(name=f"{given.name}-{count}")
    if known is not None:
        before = spec.from_json(json.loads(known.spec))
        if given.seed is None:
            given = given._replace(seed=before.seed)
        given = given._replace(earlier=_earlier(before, given.template))
        metric = given.metric
        if metric and metric.is_guessed and before.metric and before.metric.name == metric.name:
            given = given._replace(
                metric=metric._replace(goal=before.metric.goal, is_guessed=False)
            )
    key = f"{given.name or ''} {key_of(given, context)}"
    name = given.name or (known.name if known is not None else _fresh_name(db))
    return known, name, given.seeded(key)._replace(name=name)


def _earlier(before: SweepSpec, template: Template) -> tuple[Template, ...]:
    """The earlier commands of a sweep, without its current one."""
    previous = (*before.earlier, before.template)
    current = meaning(template), template.shell
    distinct = {(tuple(meaning(one)), one.shell): one for one in previous}
    others = [one for one in distinct.values() if (meaning(one), one.shell) != current]
    return tuple(others[-_MAX_EARLIER:])


def _folder_of(db: Database, row: SweepRow) -> str:
    return original_folder(contexts.load_context(db, row.context))


def key_of(given: SweepSpec, context: Context) -> str:
    """A key of the command, method and folder; it does not depend on the values."""
    parts = [meaning(given.template), given.template.shell, given.method, original_folder(context)]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _fresh_name(db: Database) -> str:
    rng = random.SystemRandom()
    for _ in range(100):
        name = names.suggest(rng)
        if sweeps.by_name(db, name) is None:
            return name
    return f"{name}-{rng.randrange(10**6)}"


def _columns(db: Database, given: SweepSpec, base: JobSpec, same_fails: int) -> dict[str, object]:
    common = {field: getattr(base, field) for field in _OF_BASE}
    return {
        "key": key_of(given, base.context),
        "spec": json.dumps(given.to_json()),
        "base": json.dumps(
            {
                **common,
                "settings": base.settings.changes(),
                "request_fields": base.request._asdict(),
                SEARCH_PYTHON: sys.executable,
            }
        ),
        "context": context_id(db, base.context),
        "is_driven": int(given.method in ADAPTIVE),
        "max_parallel": given.max_parallel,
        "max_fails": given.max_fails,
        "same_fails": same_fails or None,
    }


def _is_driven(given: SweepSpec) -> bool:
    """Whether the sweep needs a driver because results decide how it continues."""
    has_target = given.metric is not None and given.metric.target is not None
    return given.method in ADAPTIVE or given.early_stop is not None or has_target


def _base(db: Database, row: SweepRow) -> JobSpec:
    fields = json.loads(row.base)
    # Release 0.1 stored `request` as a list in the order of the fields.
    given = from_fields(Request, fields.get("request_fields") or fields["request"])
    request = Request._make(tuple(part) if isinstance(part, list) else part for part in given)
    fields.update(argv=(), context=contexts.load_context(db, row.context), request=request)
    fields["tags"] = tuple(fields["tags"])
    fields["settings"] = settings_of(fields["settings"])
    return from_fields(JobSpec, fields)
