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

from stoker.api import Queue
from stoker.core.model import Context, JobSpec, Request
from stoker.core.record import Record
from stoker.core.states import WAITING
from stoker.errors import Conflict, UsageError
from stoker.failpoints import point as failpoint
from stoker.store import ledger, sweeps
from stoker.store.database import Database
from stoker.store.submissions import context_id
from stoker.store.sweeps import SweepRow, TrialRow
from stoker.sweeps import methods, names, spec
from stoker.sweeps.identity import meaning
from stoker.sweeps.spec import ADAPTIVE, SweepSpec
from stoker.sweeps.values import Point
from stoker.trials import Trials, is_missing, new_points, sweep_folder

# A mistake in the program shows in a handful of trials; the other thousand would show no more.
SAME_FAILS = 5
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


class Plan(Record):
    """What a sweep would come to: for --dry-run."""

    name: str
    known: SweepRow | None
    spec: SweepSpec
    new: list[Point]
    missing: list[TrialRow]


def start(queue: Queue, given: SweepSpec, base: JobSpec, same_fails: int = SAME_FAILS) -> Started:
    """Queue every point that has neither a result nor a job."""
    known, name, given = _recognise(queue.db, given, base.context)
    if given.method not in ADAPTIVE:
        methods.points(given)  # refuses what cannot be listed, before anything is written
    now = time.time()
    with queue.db.transaction():
        sweep = sweeps.save(queue.db, name, now, _columns(queue.db, given, base, same_fails))
        sweeps.start_counting(queue.db, sweep)
        failpoint("sweep.before_commit")
    trials = Trials(queue.db, queue.settings.state_dir, sweep, given, base)
    missing = [row for row in sweeps.trials(queue.db, sweep) if is_missing(row)]
    new = [] if given.method in ADAPTIVE else trials.add_listed()
    jobs = [*new, *trials.run_again(missing)]
    wakes = bool(jobs or given.method in ADAPTIVE) and not base.held and queue.wake()
    return Started(
        name, known is None, len(new), tuple(jobs), sweeps.counts(queue.db, sweep), wakes
    )


def plan(queue: Queue, given: SweepSpec, base: JobSpec) -> Plan:
    """The same without doing it."""
    known, name, given = _recognise(queue.db, given, base.context)
    before = sweeps.identities(queue.db, known.id) if known is not None else set()
    new = [] if given.method in ADAPTIVE else list(new_points(given, before))
    rows = sweeps.trials(queue.db, known.id) if known is not None else []
    return Plan(name, known, given, new, [row for row in rows if is_missing(row)])


def extend(queue: Queue, name: str, trials: int) -> Started:
    """So many more trials of a sweep by chance or by search."""
    row, given, base = load(queue.db, name)
    if given.method == "grid" and given.trials is None:
        raise Conflict(
            f"`{name}` is a whole grid and has no more points",
            "give it again with more values, or `stoker sweep --method random`",
        )
    count = sum(sweeps.counts(queue.db, row.id).values())
    return start(queue, given._replace(trials=count + trials, name=name), base, row.same_fails or 0)


def stop(queue: Queue, name: str, *, kills: bool = False) -> tuple[int, int]:
    """Start no more of it; (trials that were waiting, running ones that are being cancelled)."""
    row = sweeps.get(queue.db, name)
    with queue.db.transaction():
        ended = ledger.stop_sweep(queue.db, row.id, "stopped by hand", time.time())
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
        sweeps.start_counting(queue.db, row.id)
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

    shutil.rmtree(sweep_folder(queue.settings.state_dir, name), ignore_errors=True)
    return len(queue.remove(jobs))


def load(db: Database, name: str) -> tuple[SweepRow, SweepSpec, JobSpec]:
    """A sweep as it was given: its row, its spec, and what its jobs have in common."""
    row = sweeps.get(db, name)
    return row, spec.from_json(json.loads(row.spec)), _base(db, row)


# -- what a sweep is -------------------------------------------------------------------------------


def _recognise(
    db: Database, given: SweepSpec, context: Context
) -> tuple[SweepRow | None, str, SweepSpec]:
    """The sweep that is meant, its name, and the spec with the seed that it has."""
    key = key_of(given, context)
    known = sweeps.by_name(db, given.name) if given.name else sweeps.by_key(db, key)
    if known is not None and given.seed is None:
        before = spec.from_json(json.loads(known.spec))
        given = given._replace(seed=before.seed)
    name = given.name or (known.name if known is not None else _fresh_name(db))
    return known, name, given.seeded()._replace(name=name)


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
        "base": json.dumps({**common, "request": list(base.request)}),
        "context": context_id(db, base.context),
        "is_driven": int(given.method in ADAPTIVE or given.early_stop is not None),
        "max_parallel": given.max_parallel,
        "max_fails": given.max_fails,
        "same_fails": same_fails or None,
    }


def _base(db: Database, row: SweepRow) -> JobSpec:
    fields = json.loads(row.base)
    request = [tuple(part) if isinstance(part, list) else part for part in fields.pop("request")]
    fields["tags"] = tuple(fields["tags"])
    context = ledger.context(db, row.context)
    return JobSpec((), context, request=Request._make(request), **fields)
