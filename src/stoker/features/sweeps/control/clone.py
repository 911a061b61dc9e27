"""Clone a sweep: a new sweep with the definition, options and environment of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoker.client.queue import Queue
from stoker.client.submit.spec_options import hidden_settings, in_context_of, options_of_spec
from stoker.engine.model import JobSpec
from stoker.engine.store.database import Database
from stoker.features.sweeps import store as sweeps
from stoker.features.sweeps.control.lifecycle import load
from stoker.features.sweeps.spec.spec import SweepSpec, make_spec
from stoker.features.sweeps.spec.value_text import axis_key, axis_text, value_text
from stoker.text.commands.shell_words import display


def free_name(db: Database, name: str) -> str:
    """A name for the clone of a sweep: `search-2` for `search`, `search-3` for `search-2`."""
    stem, dash, last = name.rpartition("-")
    number = 2
    if dash and last.isascii() and last.isdigit() and len(last) < 6:
        name, number = stem, int(last) + 1
    while sweeps.by_name(db, f"{name}-{number}") is not None:
        number += 1
    return f"{name}-{number}"


def cloned(old: SweepSpec, changes: Mapping[str, Any]) -> SweepSpec:
    """The definition of a clone, checked. `changes` has fields of SweepSpec, and its name.

    Trials that were added to the original one by one are trials of the clone as well. Raises
    UsageError.
    """
    own = {
        **old._asdict(),
        "trials": old.total_trials,
        "more": 0,
        "earlier": (),
        "points": () if "space" in changes else old.points,
        **changes,
    }
    if changes.get("method") in ("grid", "shuffled") and "trials" not in changes:
        own["trials"] = None
    return make_spec(**own)


def cloned_job(
    spec: JobSpec, old: JobSpec, given: Mapping[str, Any], env: Mapping[str, str]
) -> JobSpec:
    """A job with the environment of the original's; `given` has the options that were edited."""
    return in_context_of(spec, old, env.items(), has_folder=bool(given.get("cwd")))


def with_hidden_options(given: Mapping[str, Any], old: JobSpec) -> dict[str, Any]:
    """The options of a form, and those of the original that the form does not show."""
    before = options_of_spec(old)
    hidden = {key: before[key] for key in hidden_settings(old.settings, given) if key in before}
    if not given.get("time_limit") and not given.get("preemptible"):
        hidden.pop("signal", None)  # it is sent before the time limit
    return {**hidden, **given}


def form_of_sweep(queue: Queue, name: str) -> dict[str, object]:
    """The definition of a sweep as the fields of a form, with a free name for its clone.

    The environment is not part of it: the server copies it, so that no secret reaches a browser.
    """
    row, given, base = load(queue.db, name)
    metric, template = given.metric, given.template
    parameters = [
        {"name": axis_key(axis), "text": axis_text(axis), "when": axis.when}
        for axis in given.space.grids[0]
    ]
    parameters += [
        {"name": name, "text": value_text(value), "when": None}
        for name, value in given.space.constants
    ]
    return {
        "command": display(template.words, template.shell),
        "argv": None if template.shell else list(template.words),
        "parameters": parameters,
        "method": given.method,
        "trials": given.total_trials,
        "seed": None if given.method == "grid" else given.seed,
        "metric": None if metric is None else metric.name,
        "goal": "" if metric is None else metric.goal,
        "max_parallel": given.max_parallel,
        "name": free_name(queue.db, row.name),
        "options": options_of_spec(base),
        "kept": kept_parts(given, row.same_fails),
    }


def kept_parts(given: SweepSpec, same_fails: int | None) -> list[str]:
    """What a clone keeps although the form does not show it, in words."""
    kept = [
        f"{axis_key(axis)} is used only if {axis.when}"
        for axis in given.space.grids[0]
        if axis.when is not None
    ]
    if len(given.space.grids) > 1:
        more = len(given.space.grids) - 1
        kept.append(f"{more} more {'set' if more == 1 else 'sets'} of values ([[include]])")
    if given.early_stop is not None:
        options = [f"{key}={value}" for key, value in given.early_stop.items() if key != "kind"]
        words = ", ".join([str(given.early_stop["kind"]), *options])
        kept.append(f"early stopping: {words}")
    if given.metric is not None and given.metric.target is not None:
        kept.append(f"no more trials once {given.metric.name} reaches {given.metric.target:g}")
    if given.max_fails is not None:
        kept.append(f"stops after {given.max_fails} failed trials")
    if same_fails is not None:
        kept.append(f"stops after {same_fails} identical failures in a row")
    if given.lenient:
        kept.append("parameters may lack a placeholder in the command")
    return kept
