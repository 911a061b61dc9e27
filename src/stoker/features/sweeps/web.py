"""Sweeps in the web UI: preview and start the one that a form describes, and change others."""

from __future__ import annotations

from itertools import islice

from stoker.client.queue import Queue
from stoker.client.views import job as views
from stoker.engine.model import JobSpec
from stoker.engine.snapshot_context import original_folder
from stoker.errors import Unavailable, UsageError, about
from stoker.features.backends.views import request_words
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.control.clone import cloned, cloned_job, with_hidden_options
from stoker.features.sweeps.control.lifecycle import SAME_FAILS, Started, key_of
from stoker.features.sweeps.control.trials import Trials
from stoker.features.sweeps.files import toml_file
from stoker.features.sweeps.files.keys import metric as metric_table
from stoker.features.sweeps.spec import methods
from stoker.features.sweeps.spec.arguments import space_from
from stoker.features.sweeps.spec.search_space import Axis, Space, make_space
from stoker.features.sweeps.spec.spec import ADAPTIVE, Metric, SweepSpec, make_spec, read_metric
from stoker.features.sweeps.spec.value_text import axis_key, axis_text, edited_space, value_text
from stoker.features.sweeps.spec.values import Value
from stoker.features.sweeps.template import template
from stoker.features.sweeps.template.template import Template
from stoker.text.commands.shell_words import display
from stoker.web import job_form
from stoker.web.models import NewSweep, SweepAct
from stoker.web.option_forms import JobOptions

_SHOWN = 100
_COUNTED = 10_000  # points that are enumerated to get an exact number
_PREVIEW_SEED = 0  # for a random search without a seed; the sweep itself gets a new one


def read_form(queue: Queue, form: NewSweep) -> tuple[SweepSpec, JobSpec]:
    """The sweep, and the job that all of its trials are made from (without a command)."""
    if (form.command is None) == (form.argv is None):
        raise UsageError(
            "a sweep needs a command", 'give "command" (shell text) or "argv"', "command"
        )
    given = form.options or JobOptions.model_validate({})
    options = job_form.options_of(given)
    old = None if form.based_on is None else lifecycle.load(queue.db, form.based_on)
    base = job_form.base_of(queue, options if old is None else with_hidden_options(options, old[2]))
    if old is not None:
        base = cloned_job(base, old[2], given.model_dump(exclude_none=True), _variables(given))
    with about("command"):
        if form.argv is not None:
            command = template.argv(form.argv)
        else:
            command = template.shell(form.command or "")
    if old is not None:
        return _clone(form, old[1], command, base.context.cwd), base
    stop = form.early_stop
    spec = make_spec(
        command,
        _space(form, options["cwd"]),
        method=form.method or None,
        trials=form.trials or None,
        seed=form.seed,
        name=form.name or None,
        metric=_metric(form),
        early_stop={"kind": stop} if isinstance(stop, str) else stop,
        max_parallel=form.max_parallel or None,
        max_fails=form.max_fails,
        lenient=form.lenient,
    )
    return spec, base


def _clone(form: NewSweep, old: SweepSpec, command: Template, folder: str) -> SweepSpec:
    """The original sweep with the fields that the form sets, under another name."""
    if not form.name:
        raise UsageError("a clone needs a name", 'give "name"', "name")
    if form.name == old.name:
        raise UsageError(
            f"a clone of `{old.name}` needs another name",
            "with this one, it is the same sweep",
            "name",
        )
    is_set = form.model_fields_set
    changes: dict[str, object] = {
        key: getattr(form, key) or None
        for key in ("method", "trials", "max_parallel")
        if key in is_set
    }
    changes |= {
        key: getattr(form, key) for key in ("seed", "max_fails", "lenient") if key in is_set
    }
    if "early_stop" in is_set:
        stop = form.early_stop
        changes["early_stop"] = {"kind": stop} if isinstance(stop, str) else stop
    metric = _metric(form)
    before = old.metric
    is_same = metric and before and (metric.name, metric.goal) == (before.name, before.goal)
    changes |= {
        "name": form.name,
        "template": command,
        "metric": before if is_same else metric,
        "trials": form.trials or None,
    }
    space = _edited(form, old.space, folder)
    if space != old.space:
        changes["space"] = space
    return cloned(old, changes)


def _edited(form: NewSweep, space: Space, folder: str) -> Space:
    """The space of a clone. A parameter whose text was not edited keeps its exact values."""
    known = {axis_key(axis): axis_text(axis) for axis in space.grids[0]}
    known |= {name: value_text(value) for name, value in space.constants}
    edited: list[Axis] = []
    for name, given in form.parameters.items():
        if isinstance(given, str) and given.strip() == known.get(name):
            continue
        with about(f"parameters.{name}"):
            made = _domain(name, given, folder)
        edited += [axis for grid in made.grids for axis in grid]
    return edited_space(space, edited, form.parameters)


def _variables(given: JobOptions) -> dict[str, str]:
    env = given.model_dump(include={"env"}).get("env") or {}
    return {key: value if isinstance(value, str) else str(value) for key, value in env.items()}


def _space(form: NewSweep, folder: str) -> Space:
    """Text is parsed as on the command line; other values as in a sweep file."""
    axes: list[Axis] = []
    constants: list[tuple[str, Value]] = []
    for name, given in form.parameters.items():
        with about(f"parameters.{name}"):
            made = _domain(name, given, folder)
        axes += [axis for grid in made.grids for axis in grid]
        constants += made.constants
    if not axes and not constants:
        raise UsageError("a sweep needs a parameter", '"parameters": {"lr": "0.1,0.01"}')
    return make_space([axes], constants)


def _domain(name: str, given: object, folder: str) -> Space:
    if not isinstance(given, str):
        shape = {"command": ["-"], "lenient": True, "params": {name: given}}
        return toml_file.from_table(shape, folder).space
    if not given.strip():
        raise UsageError(f"`{name}` has no values", "write 0.1,0.01 or log(1e-5,1e-1)")
    return space_from([f"{name}={given}"], folder=folder)


def _metric(form: NewSweep) -> Metric | None:
    given = form.metric
    if not given:
        return None
    with about("metric"):
        if isinstance(given, dict):
            return metric_table(given)
        return read_metric(given)


def preview(queue: Queue, form: NewSweep) -> dict[str, object]:
    """The first commands exactly as they would run, and how many there are."""
    spec, base = read_form(queue, form)
    name = spec.name
    known = sweeps.by_name(queue.db, name) if name else None
    known = known or (None if name else sweeps.by_key(queue.db, key_of(spec, base.context)))
    summary: dict[str, object] = {
        "commands": [],
        "total": spec.trials,
        "method": spec.method,
        **views.request_json(base.request),
        "needs": request_words(base.request),
        "environment": job_form.environment_words(base),
        "cwd": base.context.cwd,
        "metric": None if spec.metric is None else spec.metric.words,
        "known": known.name if known is not None else None,
    }
    if spec.method in ADAPTIVE:  # trials depend on earlier results
        return summary
    seeded = spec if spec.seed is not None else spec._replace(seed=_PREVIEW_SEED)
    points = methods.points(seeded)
    commands = []
    for number, point in enumerate(islice(points, _SHOWN), 1):
        rendered = spec.template.render(point, number, f"trial-{number}")
        commands.append(display(rendered.argv, rendered.shell))
    total = len(commands) + sum(1 for _ in islice(points, _COUNTED))
    if total == _SHOWN + _COUNTED:  # too many to enumerate: use the size of the space
        limits = [n for n in (spec.space.size.points, spec.trials) if n is not None]
        total = min(limits, default=total)
    return {**summary, "commands": commands, "total": total}


def start(queue: Queue, form: NewSweep, token: str | None = None) -> dict[str, object]:
    spec, base = read_form(queue, form)
    if spec.method in ADAPTIVE or spec.early_stop is not None:
        _check_search()
    same_fails = SAME_FAILS if form.same_fails is None else form.same_fails
    if form.based_on is not None and form.same_fails is None:
        same_fails = sweeps.get(queue.db, form.based_on).same_fails or 0
    started = lifecycle.start(queue, spec, base, same_fails, token=token)
    return {
        "sweep": started.name,
        "new": started.is_new,
        "added": started.added,
        "jobs": list(started.jobs),
        "trials": started.counts,
    }


def _check_search() -> None:
    """Raise Unavailable now rather than in the sweep driver, whose errors only reach a log."""
    import importlib.util

    if importlib.util.find_spec("optuna") is None:
        raise Unavailable(
            "adaptive search and early stopping need Optuna, which is not installed",
            "pip install 'stoker[search]'",
        )


_SHOWN_NAMES = 20


def act(queue: Queue, name: str, form: SweepAct, token: str | None = None) -> dict[str, object]:
    """Do the same as `stoker sweep ACTION`.

    With a token, `extend` adds nothing twice; other actions add nothing twice in any case.
    """
    action = form.action
    if action == "stop":
        cancelled, stopping = lifecycle.stop(queue, name, kills=form.kill)
        return {"changed": cancelled + stopping, "cancelled": cancelled, "stopping": stopping}
    if action == "rerun_failed":
        jobs_added = lifecycle.rerun(queue, name)
        return {"changed": len(jobs_added), "jobs": jobs_added}
    if action == "rm":
        return {"changed": 1, "removed_jobs": lifecycle.remove(queue, name, with_jobs=form.jobs)}
    if action == "resume":
        return _started(lifecycle.resume(queue, name))
    if action == "add":
        return _add(queue, name, form)
    if not form.trials:
        raise UsageError(
            "action `extend` needs a number of trials", '{"action": "extend", "trials": 20}'
        )
    return _started(lifecycle.extend(queue, name, form.trials, expected=form.expected, token=token))


def _started(started: Started) -> dict[str, object]:
    return {
        "changed": len(started.jobs),
        "added": started.added,
        "jobs": list(started.jobs),
    }


def _add(queue: Queue, name: str, form: SweepAct) -> dict[str, object]:
    """Add values or a point; with dry_run, return how many trials that would add (`added`)."""
    base = lifecycle.load(queue.db, name)[2]
    added = _axes(form, original_folder(base.context))
    if not form.dry_run:
        return _started(lifecycle.add_values(queue, name, added, is_point=form.point))
    preview = lifecycle.preview_added(queue, name, added, is_point=form.point)
    known = sweeps.get(queue.db, name).id
    trials = Trials(queue.db, queue.settings.state_dir, known, preview.spec, base)
    first = 1 + sweeps.count_trials(queue.db, known)
    jobs = [
        trials.job(number, point, is_real=False)
        for number, point in enumerate(islice(preview.new, _SHOWN_NAMES), first)
    ]
    commands = [display(job.argv, job.shell) for job in jobs]
    return {"changed": 0, "added": len(preview.new), "commands": commands}


def _axes(form: SweepAct, folder: str) -> list[Axis]:
    """The values of a form, whose texts are parsed as on the command line."""
    axes: list[Axis] = []
    for name, text in form.parameters.items():
        if text.strip():
            with about(f"parameters.{name}"):
                axes += space_from([f"{name}={text}"], folder=folder).grids[0]
    if not axes:
        raise UsageError(
            "action `add` needs values", '{"action": "add", "parameters": {"lr": "0.1,0.01"}}'
        )
    return axes
