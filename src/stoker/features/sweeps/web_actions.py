"""Changes of sweeps, with the same checks as on the command line."""

from __future__ import annotations

from itertools import islice

from stoker.client.queue import Queue
from stoker.engine.snapshot_context import original_folder
from stoker.errors import UsageError, about
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control import lifecycle
from stoker.features.sweeps.control.lifecycle import Started
from stoker.features.sweeps.control.trials import Trials
from stoker.features.sweeps.spec.arguments import space_from
from stoker.features.sweeps.spec.search_space import Axis
from stoker.text.commands.shell_words import display
from stoker.web.models import SweepAct

_SHOWN = 20


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
        for number, point in enumerate(islice(preview.new, _SHOWN), first)
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
