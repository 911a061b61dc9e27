"""The state of a sweep in one word, and what can be done with it: for the web UI."""

from __future__ import annotations

from collections.abc import Mapping

from stoker.engine.store.database import Database
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control.driver_process import pause_reason
from stoker.features.sweeps.spec.added_values import extend_problem, values_problem
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.store import SweepRow
from stoker.record import Record
from stoker.states import ACTIVE, WAITING
from stoker.text.plurals import plural


def sweep_state(db: Database, row: SweepRow, trials: Mapping[str, int]) -> str:
    """active, paused, stopped or finished. `trials`: their number by state."""
    if row.stopped is not None:
        return "stopped"
    if pause(db, row) is not None:
        return "paused"
    is_unfinished = any(trials.get(state) for state in (*WAITING, *ACTIVE))
    return "active" if is_unfinished or row.is_driven else "finished"


def pause(db: Database, row: SweepRow) -> str | None:
    """Why the search adds no trials at the moment; None if it is not paused."""
    if row.stopped is not None or not row.is_driven:
        return None
    return sweeps.pause(db, row.id) or pause_reason(db.folder)


_WAITING = ("queued", "held", "submitted")
_RUNNING = ("starting", "running", "stopping")


class Choice(Record):
    """An action on a sweep. `problem` says why it is not possible; None: it is."""

    action: str
    problem: str | None
    effect: str  # what it does to this sweep, as a sentence


def choices(
    row: SweepRow, given: SweepSpec, counts: dict[str, int], missing: int, state: str
) -> list[Choice]:
    """The actions on a sweep with these numbers of trials by state."""
    waiting = sum(counts.get(one, 0) for one in _WAITING)
    running = sum(counts.get(one, 0) for one in _RUNNING)
    failed = counts.get("failed", 0) + counts.get("lost", 0)
    can_stop = state in ("active", "paused") or running
    more, values = extend_problem(given), values_problem(given)
    return [
        Choice("clone", None, "Starts a new sweep from this definition, after you edited it."),
        Choice(
            "extend",
            None if more is None else f"The sweep {more.reason}.",
            f"Adds trials to the {given.total_trials} of the sweep."
            if given.total_trials is not None
            else "",
        ),
        Choice(
            "add_values",
            None if values is None else f"The sweep {values.reason}.",
            "Adds values of its parameters; only the new combinations run.",
        ),
        Choice("add_point", None, "Adds one trial with values that you choose."),
        Choice(
            "resume",
            _resume_problem(row, missing),
            f"Runs {plural(missing, 'trial')} that {'has' if missing == 1 else 'have'} neither a"
            " result nor a job."
            if missing
            else "Continues the search.",
        ),
        Choice(
            "rerun_failed",
            None if failed else "No trial failed.",
            f"Runs {plural(failed, 'failed trial')} again.",
        ),
        Choice(
            "stop",
            None if can_stop else "No trial waits or runs.",
            f"Cancels {plural(waiting, 'waiting trial')}; {plural(running, 'running trial')}"
            f" {'continues' if running == 1 else 'continue'} unless you cancel"
            f" {'it' if running == 1 else 'them'} too. The sweep can be resumed later.",
        ),
        Choice(
            "rm",
            f"{plural(waiting + running, 'trial')} did not finish yet; stop the sweep first."
            if waiting + running
            else None,
            f"{removal_text(sum(counts.values()))} This cannot be undone.",
        ),
    ]


def _resume_problem(row: SweepRow, missing: int) -> str | None:
    if row.stopped is not None or missing:
        return None
    return "Every trial has a result or a job."


def removal_text(trials: int, *, with_jobs: bool = False) -> str:
    """What `stoker sweep rm` removes, and with `--jobs`."""
    what = f"the sweep and its table of {plural(trials, 'trial')} with parameters and results"
    if with_jobs:
        return f"Removes {what}, all its jobs with logs and metrics, and the folders of its trials."
    return f"Removes {what}. Its jobs with their logs, metrics and folders stay."
