"""`stoker sweep clone`: start a new sweep from the definition of another one."""

from __future__ import annotations

from stoker.client.queue import Queue
from stoker.client.submit.job_options import file_values, flag_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.submit.spec_options import options_of_spec
from stoker.engine.model import JobSpec
from stoker.errors import UsageError
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.control.clone import cloned, cloned_job, free_name
from stoker.features.sweeps.spec import arguments, names
from stoker.features.sweeps.spec.edited_space import edited_space
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.sweep_command import (
    adding_trials,
    is_wanted,
    read_conditions,
    read_early_stop,
    report,
    show_preview,
)
from stoker.text.command_line import Parsed

_NOT_FOR_CLONES = ("failed", "kill", "jobs", "point", "sync")
_FIELDS = ("method", "trials", "seed", "metric", "max_parallel", "max_fails")


def clone(queue: Queue, words: list[str], parsed: Parsed) -> int:
    """Start the clone, or print its commands (`--dry-run`). Returns the exit code 0."""
    for option in _NOT_FOR_CLONES:
        if parsed[option]:
            raise UsageError(
                f"`stoker sweep clone` has no option `--{option}`",
                "its options are those of a new sweep",
            )
    if not words:
        raise UsageError(
            "`stoker sweep clone` needs the name of a sweep",
            "list the sweeps with: stoker sweep ls",
        )
    old, *assignments = words
    for word in assignments:
        if not arguments.is_assignment(word):
            raise UsageError(
                f"`{word}` is not a parameter",
                "the command of the original is used; give values: lr=1e-3,1e-4",
            )
    row, given, before = lifecycle.load(queue.db, old)
    spec = _edited(queue, given, old, assignments, parsed)
    base = _base(queue, before, parsed)
    if parsed["dry_run"]:
        preview = lifecycle.preview(queue, spec, base)
        return show_preview(queue, preview, base, parsed)
    same_fails = row.same_fails or 0 if parsed["same_fails"] is None else parsed["same_fails"]
    if not is_wanted(lifecycle.count_new(queue, spec, base), parsed):
        return 1
    with adding_trials(spec) as on_progress:
        started = lifecycle.start(queue, spec, base, same_fails, on_progress=on_progress)
    report(started, spec, parsed)
    return 0


def _edited(
    queue: Queue, given: SweepSpec, old: str, assignments: list[str], parsed: Parsed
) -> SweepSpec:
    name = names.check(parsed["name"]) if parsed["name"] else free_name(queue.db, old)
    if sweeps.by_name(queue.db, name) is not None and not parsed["dry_run"]:
        raise UsageError(
            f"there is already a sweep `{name}`", "choose another name with --name NAME"
        )
    changes: dict[str, object] = {key: parsed[key] for key in _FIELDS if parsed[key] is not None}
    changes["name"] = name
    stop = read_early_stop(parsed["early_stop"])
    if stop is not None:
        changes["early_stop"] = stop
    if parsed["lenient"]:
        changes["lenient"] = True
    parameters = [(one[0], one[1:]) for one in parsed["param"] or ()]
    if assignments or parameters:
        conditions = read_conditions(parsed)
        made = arguments.space_from(assignments, parameters, conditions)
        changes["space"] = edited_space(given.space, made.grids[0])
    elif parsed["when"]:
        raise UsageError("`--when` needs the values of its parameter", "write wd=0,0.1 as well")
    return cloned(given, changes)


def _base(queue: Queue, old: JobSpec, parsed: Parsed) -> JobSpec:
    """The options of the original's jobs; those of the command line override them."""
    given = flag_values({**parsed.values, "name": None})
    values = {**file_values(options_of_spec(old)), **given}
    base = JobSpecs(queue.settings, queue.devices(), values).base
    env = dict((*given.get("env_file", ()), *given.get("env", ())))
    return cloned_job(base, old, given, env)
