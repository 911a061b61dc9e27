"""Sweeps as lasting things: start them, give them again, extend, stop, resume, rerun, forget.

A sweep is recognised by its name, or by its template and folder. What was asked for is one trial
per point, recognised by its identity; so giving a sweep again adds the points that are new and runs
those that have no job any more, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterable, Iterator

from stoker.client.queue import Queue
from stoker.client.reports import JobFiles
from stoker.client.trials import Trials, chunks, is_missing, listed, sweep_folder
from stoker.core.fields import from_fields
from stoker.core.model import Context, JobSpec, Request
from stoker.core.record import Record
from stoker.core.states import WAITING
from stoker.errors import Conflict, Unavailable, UsageError
from stoker.store import contexts, dependencies, sweeps
from stoker.store.database import Database
from stoker.store.submit import context_id
from stoker.store.sweeps import SweepRow, TrialRow
from stoker.sweeps import methods, names, spec
from stoker.sweeps.identity import identity, meaning
from stoker.sweeps.spec import ADAPTIVE, KILL_AFTER, MOST_TRIALS, SweepSpec, stop_seconds
from stoker.sweeps.template.template import Template
from stoker.sweeps.values import Point, point_from_json
from stoker.testing.failpoints import point as failpoint

# A mistake in the program shows in a handful of trials; the other thousand would show no more.
SAME_FAILS = 5
_MOST_INCLUDED = 1000
_MOST_EARLIER = 50  # a notebook makes a new function of every cell that is run again
_OF_BASE = (
    "priority", "time_limit", "grace", "retries", "restartable", "tags", "held", "keep_children",
    "on_oom", "warn",
)  # fmt: skip


class Started(Record):
    """What giving a sweep came to."""

    name: str
    is_new: bool
    added: int  # trials that it did not have
    jobs: tuple[int, ...]  # what was submitted for them and for missing ones
    counts: dict[str, int]  # all its trials by state
    wakes: bool  # a daemon was started for it
    listed: int | None = None  # points that were asked for; None: chosen one after another


class Plan(Record):
    """What a sweep would come to: for --dry-run."""

    name: str
    known: SweepRow | None
    spec: SweepSpec
    new: list[Point]
    missing: list[TrialRow]
    listed: int | None = None  # points that are asked for


def start(
    queue: Queue,
    given: SweepSpec,
    base: JobSpec,
    same_fails: int = SAME_FAILS,
    *,
    is_suggested: bool = False,
) -> Started:
    """Queue every point that has neither a result nor a job.

    `is_suggested` says that the name was not given but made of a file's: the same file name in
    another folder is another sweep.
    """
    db, state_dir = queue.db, queue.settings.state_dir
    check_search(given)
    is_adaptive = given.method in ADAPTIVE
    if not is_adaptive:
        # Refuses what cannot be listed, before anything is written.
        methods.points(given.seeded(""))
    with db.transaction():
        known, name, given = _recognise(db, given, base.context, is_suggested)
        sweep = sweeps.save(db, name, time.time(), _columns(db, given, base, same_fails))
        sweeps.start_counting(db, sweep)
        failpoint("sweep.before_commit")
    rows = sweeps.trials(db, sweep)
    trials = Trials(db, state_dir, sweep, given, base)
    new: list[int] = []
    again: list[int] = []
    wakes = False
    try:
        if is_adaptive:
            asked_for = {
                row.identity
                for row in rows
                if identity(given.template, point_from_json(row.point)) == row.identity
            }
            before = {row.identity for row in rows}
            included = {identity(given.template, point): point for point in _included(known, given)}
            fresh = [point for key, point in included.items() if key not in before]
            new += trials.add(fresh) if fresh else []
        else:
            asked_for = set()
            before = {row.identity for row in rows}
            for chunk in chunks(listed(given)):
                asked_for.update(key for key, _ in chunk)
                fresh = [point for key, point in chunk if key not in before]
                new += trials.add(fresh) if fresh else []
        again = trials.run_again(
            row for row in rows if is_missing(row) and row.identity in asked_for
        )
        if _is_driven(given) and not is_adaptive:
            with db.transaction():  # not before: a sweep without trials would be over at once
                sweeps.set_driven(db, sweep)
    finally:  # what is in the queue runs, also when somebody lost patience half-way
        if (new or again or is_adaptive) and not base.held:
            wakes = queue.wake()
    listed_points = None if is_adaptive else len(asked_for)
    return Started(name, known is None, len(new), (*new, *again), sweeps.counts(db, sweep), wakes,
                   listed_points)  # fmt: skip


def plan(queue: Queue, given: SweepSpec, base: JobSpec, *, is_suggested: bool = False) -> Plan:
    """The same without doing it."""
    known, name, given = _recognise(queue.db, given, base.context, is_suggested)
    rows = sweeps.trials(queue.db, known.id) if known is not None else []
    if given.method in ADAPTIVE:
        before = {row.identity for row in rows}
        new = [p for p in _included(known, given) if identity(given.template, p) not in before]
        return Plan(name, known, given, new, [row for row in rows if is_missing(row)])
    points = dict(listed(given))
    before = {row.identity for row in rows}
    missing = [row for row in rows if is_missing(row) and row.identity in points]
    new = [point for key, point in points.items() if key not in before]
    return Plan(name, known, given, new, missing, len(points))


def _included(known: SweepRow | None, given: SweepSpec) -> Iterator[Point]:
    """Points that an edit of a search has added by name, in an [[include]] without intervals.

    A search may never come by them, and somebody wants to know.
    """
    if known is None:
        return
    before = spec.from_json(json.loads(known.spec)).space.grids
    for grid in given.space.grids[1:]:
        alone = given.space._replace(grids=(grid,))
        size = alone.size.points
        if grid not in before and size is not None and size <= _MOST_INCLUDED:
            yield from methods.points(given._replace(space=alone, method="grid", trials=None))


def check_search(given: SweepSpec) -> None:
    """Find out now what is not installed, not in a process that nobody sees."""
    import importlib.util

    needs = ["optuna"] if given.method in ADAPTIVE or given.early_stop is not None else []
    needs += {"cmaes": ["cmaes"], "gp": ["scipy", "torch"]}.get(given.method, [])
    missing = [package for package in needs if importlib.util.find_spec(package) is None]
    if not missing:
        return
    what = "adaptive search and early stopping need" if missing == ["optuna"] else \
        f"the method {given.method} needs"  # fmt: skip
    ours = ["'stoker[search]'"] if {"optuna", "cmaes"}.intersection(missing) else []
    others = [package for package in missing if package in ("scipy", "torch")]
    packages = f"package{'s' if len(missing) > 1 else ''} {' and '.join(missing)}"
    raise Unavailable(
        f"{what} the {packages}, which cannot be found",
        f"pip install {' '.join([*ours, *others])}",
    )


def deaf_hint(given: SweepSpec) -> str | None:
    """What to know about early stopping of a command; None where nothing has to be said."""
    if given.early_stop is None or stop_seconds(given) is not None:
        return None
    kind = given.early_stop["kind"]
    return (
        "trials that stop early have to ask for it: stoker.should_stop(), or the file "
        f"$STOKER_STOP_FILE; to end those that do not: --early-stop {kind},{KILL_AFTER}=60"
    )


def deaf_trials(state_dir: str, trials: Iterable[TrialRow]) -> list[int]:
    """The jobs of trials that were asked to stop early and still run."""
    running = [trial.job for trial in trials if trial.state == "running"]
    return [job for job in running if JobFiles(state_dir).has_stop(job) and job is not None]


def extend(queue: Queue, name: str, trials: int) -> Started:
    """So many more trials of a sweep by chance or by search."""
    row, given, base = load(queue.db, name)
    if given.trials is None:
        why = "goes on for ever" if given.method in ADAPTIVE else "is a whole grid"
        raise Conflict(f"`{name}` {why}: there is nothing to extend",
                       "give it again with more values, or with --trials")  # fmt: skip
    more = given.more + trials
    if given.trials + more > MOST_TRIALS:
        raise UsageError(f"`{name}` would have {given.trials + more:,} trials, more than"
                         f" {MOST_TRIALS:,}")  # fmt: skip
    return start(queue, given._replace(more=more, name=name), base, row.same_fails or 0)


def stop(queue: Queue, name: str, *, kills: bool = False) -> tuple[int, int]:
    """Start no more of it; (trials that were waiting, running ones that are being cancelled)."""
    row = sweeps.get(queue.db, name)
    with queue.db.transaction():
        ended = dependencies.stop_sweep(queue.db, row.id, "stopped by hand", time.time())
    running = sweeps.jobs(queue.db, row.id, ("starting", "running")) if kills else []
    asked = queue.cancel(running)[1] if running else 0
    queue.poke()
    return ended, asked


def resume(queue: Queue, name: str) -> Started:
    """Go on: run what has no result and no job."""
    row, given, base = load(queue.db, name)
    return start(queue, given._replace(name=name), base, row.same_fails or 0)


def rerun(queue: Queue, name: str, numbers: set[int] | None = None) -> list[int]:
    """Run failed and lost trials once more, or those with these numbers."""
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
            if trial.state in (*WAITING, "starting", "running", "stopping"):
                raise Conflict(f"trial {trial.number} is {trial.state} already")
    with queue.db.transaction():
        # A search that was stopped must not go on because one trial is looked at again.
        sweeps.start_counting(queue.db, row.id, goes_on=given.method not in ADAPTIVE)
        if _is_driven(given) and given.method not in ADAPTIVE:
            sweeps.set_driven(queue.db, row.id)
    trials = Trials(queue.db, queue.settings.state_dir, row.id, given._replace(name=name), base)
    jobs = trials.run_again(chosen)
    if jobs and not base.held:
        queue.wake()
    return jobs


def remove(queue: Queue, name: str, *, with_jobs: bool = False) -> int:
    """Forget a sweep; with its jobs and their logs if asked. Refused while something runs."""
    row = sweeps.get(queue.db, name)
    active = sweeps.jobs(queue.db, row.id, (*WAITING, "starting", "running", "stopping"))
    if active:
        raise Conflict(
            f"{len(active)} trials of `{name}` are not over",
            f"`stoker sweep stop --kill {name}` ends them",
        )
    jobs = sweeps.jobs(queue.db, row.id, ("done", "failed", "cancelled", "lost"))
    with queue.db.transaction():
        sweeps.remove(queue.db, row.id)
    if not with_jobs:
        return 0
    import shutil

    shutil.rmtree(sweep_folder(queue.settings.state_dir, row.id, name), ignore_errors=True)
    return len(queue.remove(jobs))


def load(db: Database, name: str) -> tuple[SweepRow, SweepSpec, JobSpec]:
    """A sweep as it was given: its row, its spec, and what its jobs have in common."""
    row = sweeps.get(db, name)
    return row, spec.from_json(json.loads(row.spec)), _base(db, row)


# -- what a sweep is -------------------------------------------------------------------------------


def _recognise(
    db: Database, given: SweepSpec, context: Context, is_suggested: bool
) -> tuple[SweepRow | None, str, SweepSpec]:
    """The sweep that is meant, its name, and the spec with the seed that it has."""
    if given.name is None:
        known = sweeps.by_key(db, key_of(given, context))
    else:
        names.check(given.name)
        known = sweeps.by_name(db, given.name)
        count = 1
        while is_suggested and known is not None and _folder_of(db, known) != context.cwd:
            count += 1
            known = sweeps.by_name(db, f"{given.name}-{count}")
        if count > 1:
            given = given._replace(name=f"{given.name}-{count}")
    if known is not None:
        before = spec.from_json(json.loads(known.spec))
        if given.seed is None:
            given = given._replace(seed=before.seed)
        given = given._replace(earlier=_earlier(before, given.template))
    key = f"{given.name or ''} {key_of(given, context)}"
    name = given.name or (known.name if known is not None else _fresh_name(db))
    return known, name, given.seeded(key)._replace(name=name)


def _earlier(before: SweepSpec, template: Template) -> tuple[Template, ...]:
    """The commands that a sweep had, but for the one that it has now."""
    had = (*before.earlier, before.template)
    now = meaning(template), template.shell
    kinds = {(tuple(meaning(one)), one.shell): one for one in had}
    others = [one for one in kinds.values() if (meaning(one), one.shell) != now]
    return tuple(others[-_MOST_EARLIER:])


def _folder_of(db: Database, row: SweepRow) -> str:
    return contexts.load_context(db, row.context).cwd


def key_of(given: SweepSpec, context: Context) -> str:
    """Equal for the same command and method in the same folder, whatever the values."""
    parts = [meaning(given.template), given.template.shell, given.method, context.cwd]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _fresh_name(db: Database) -> str:
    chance = random.SystemRandom()
    for _ in range(100):
        name = names.suggest(chance)
        if sweeps.by_name(db, name) is None:
            return name
    return f"{name}-{chance.randrange(10**6)}"


def _columns(db: Database, given: SweepSpec, base: JobSpec, same_fails: int) -> dict[str, object]:
    common = {field: getattr(base, field) for field in _OF_BASE}
    return {
        "key": key_of(given, base.context),
        "spec": json.dumps(given.to_json()),
        "base": json.dumps({**common, "request_fields": base.request._asdict()}),
        "context": context_id(db, base.context),
        "is_driven": int(given.method in ADAPTIVE),
        "max_parallel": given.max_parallel,
        "max_fails": given.max_fails,
        "same_fails": same_fails or None,
    }


def _is_driven(given: SweepSpec) -> bool:
    """Whether results decide what becomes of it."""
    has_target = given.metric is not None and given.metric.target is not None
    return given.method in ADAPTIVE or given.early_stop is not None or has_target


def _base(db: Database, row: SweepRow) -> JobSpec:
    fields = json.loads(row.base)
    # 0.1 wrote `request`: a list in the order of the fields.
    given = from_fields(Request, fields.get("request_fields") or fields["request"])
    request = Request._make(tuple(part) if isinstance(part, list) else part for part in given)
    fields.update(argv=(), context=contexts.load_context(db, row.context), request=request)
    fields["tags"] = tuple(fields["tags"])
    return from_fields(JobSpec, fields)
