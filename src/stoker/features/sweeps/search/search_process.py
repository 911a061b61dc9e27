"""The search process: reads requests and writes answers, one line of JSON each.

`SearchClient` starts it. Only this process imports Optuna, which takes a second and much
memory; if Optuna crashes, only this process dies. The study is rebuilt from the database, and the
random state of each request is derived from the seed and the number of trials, so that a restarted
search continues as if it had not been interrupted.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, TextIO

from stoker.features.sweeps.spec import methods, spec
from stoker.features.sweeps.spec.domains import Choices, Continuous, Domain, Steps, Whole
from stoker.features.sweeps.spec.search_space import Axis, holds, order
from stoker.features.sweeps.spec.spec import ADAPTIVE, SweepSpec
from stoker.features.sweeps.spec.values import Point, Value, from_data, point_key
from stoker.testing.failpoints import failpoint

_MAX_ATTEMPTS = 10  # to get a new point from the sampler, before a random point is taken


class Search:
    """An Optuna study and the mapping of trial numbers to its trials."""

    def __init__(self, optuna: Any, sweep: SweepSpec, history: list[dict[str, Any]]) -> None:
        self._optuna = optuna
        self._sweep = sweep
        self._known: set[str] = set()
        self._numbers: dict[int, int] = {}  # number of a trial -> number in the study
        self._next = 1  # trials are numbered from 1
        goal = "maximize" if sweep.metric is not None and sweep.metric.goal == "max" else "minimize"
        self._study = optuna.create_study(
            study_name="sweep",  # Hyperband hashes the name to assign brackets; keep it constant
            direction=goal,
            sampler=self._sampler(0),
            pruner=self._pruner(history),
        )
        for number, entry in enumerate(history):
            self._remember(int(entry.get("number", number)), entry)

    def ask(self, count: int) -> list[dict[str, object]]:
        """Return new points; fewer than `count` if the space is exhausted."""
        found: list[dict[str, object]] = []
        while len(found) < count:
            point = self._new()
            if point is None:
                break
            number, self._next = self._next, self._next + 1
            self._numbers[number] = len(self._study.trials) - 1
            self._known.add(point_key(point))
            params = {name: [value.data, value.text] for name, value in point.items()}
            found.append({"number": number, "params": params})
        return found

    def tell(
        self, number: int, state: str, value: float | None, curve: list[tuple[int, float]]
    ) -> None:
        states = self._optuna.trial.TrialState
        place = self._numbers.get(number)
        if place is None or self._study.trials[place].state.is_finished():
            return  # from an earlier version of the space, or reported twice
        if curve:
            self._add_intermediate_values(self._study.trials[place]._trial_id, curve)
        if state == "stopped":
            self._study.tell(place, state=states.PRUNED)
        elif state == "done" and value is not None and math.isfinite(value):
            self._study.tell(place, value)
        else:
            self._study.tell(place, state=states.FAIL)

    def _add_intermediate_values(self, trial: int, curve: list[tuple[int, float]]) -> None:
        """Store the values that `report` did not see: the pruner compares other trials to them."""
        storage = self._study._storage
        for step, value in curve:
            if math.isfinite(value):
                storage.set_trial_intermediate_value(trial, step, value)
        whole = list(storage.get_trial(trial).intermediate_values.items())
        for key, value in self._rungs(whole).items():
            storage.set_trial_system_attr(trial, key, value)

    def report(self, number: int, step: int, value: float) -> bool:
        """Whether to stop the trial. Writes to the storage directly, because creating an Optuna
        Trial object would call the sampler."""
        storage, place = self._study._storage, self._numbers.get(number)
        if place is None or self._study.trials[place].state.is_finished():
            return False
        trial = self._study.trials[place]
        if math.isfinite(value):
            storage.set_trial_intermediate_value(trial._trial_id, step, value)
        return bool(self._study.pruner.prune(self._study, storage.get_trial(trial._trial_id)))

    def _new(self) -> Point | None:
        for attempt in range(_MAX_ATTEMPTS):
            self._study.sampler = self._sampler(attempt)
            trial = self._study.ask()
            point = self._suggest(trial)
            if point_key(point) not in self._known:
                return point
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        for point in methods.sampled(self._sweep.space, self._seed(_MAX_ATTEMPTS)):
            if point_key(point) not in self._known:
                self._add(point, "running", None, [])
                return point
        return None

    def _suggest(self, trial: Any) -> Point:
        space = self._sweep.space
        grids = len(space.grids)
        grid = trial.suggest_categorical("grid", list(range(grids))) if grids > 1 else 0
        axes = space.grids[grid]
        chosen: Point = dict(space.constants)
        for index in order(axes):
            if holds(axes[index], chosen):
                values = _suggest_axis(trial, f"{grid}.{index}", axes[index])
                chosen.update(zip(axes[index].names, values, strict=True))
        in_order = [*dict(space.constants), *(name for axis in axes for name in axis.names)]
        return {name: chosen[name] for name in in_order if name in chosen}

    def _remember(self, number: int, entry: dict[str, Any]) -> None:
        point = {name: from_data(data) for name, data in entry["params"].items()}
        self._known.add(point_key(point))
        self._next = max(self._next, number + 1)
        if self._add(point, entry["state"], entry.get("value"), entry.get("curve") or []):
            self._numbers[number] = len(self._study.trials) - 1

    def _add(self, point: Point, state: str, value: float | None, curve: list[Any]) -> bool:
        """Add a past trial to the study; return False if its point is not in the space."""
        placed = self._place(point)
        if placed is None:
            return False
        states = self._optuna.trial.TrialState
        reached = {"running": states.RUNNING, "stopped": states.PRUNED}.get(state, states.FAIL)
        if state == "done" and value is not None and math.isfinite(value):
            reached = states.COMPLETE
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=reached,
                value=value if reached == states.COMPLETE else None,
                params={name: number for name, (number, _) in placed.items()},
                distributions={name: distribution for name, (_, distribution) in placed.items()},
                intermediate_values={int(s): float(v) for s, v in curve if math.isfinite(v)},
                system_attrs=self._rungs(curve),
            )
        )
        return True

    def _place(self, point: Point) -> dict[str, tuple[Any, Any]] | None:
        """The study's parameters and distributions for a point; None if it is not in the space."""
        space = self._sweep.space
        grids = range(len(space.grids))
        for grid in grids:
            found = self._place_in(grid, point)
            if found is not None:
                if len(grids) > 1:
                    choice = self._optuna.distributions.CategoricalDistribution(list(grids))
                    found["grid"] = (grid, choice)
                return found
        return None

    def _place_in(self, grid: int, point: Point) -> dict[str, tuple[Any, Any]] | None:
        axes = self._sweep.space.grids[grid]
        names = {name for axis in axes for name in axis.names}
        if set(point) - names - set(dict(self._sweep.space.constants)):
            return None
        found: dict[str, tuple[Any, Any]] = {}
        for index, axis in enumerate(axes):
            if not set(axis.names) & set(point):
                if axis.when is None:
                    return None
                continue
            place = _locate(axis, point)
            if place is None:
                return None
            found[f"{grid}.{index}"] = (place, _distribution(self._optuna.distributions, axis))
        return found

    def _seed(self, attempt: int) -> int:
        text = f"{self._sweep.seed} {len(self._known)} {attempt}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def _sampler(self, attempt: int) -> Any:
        samplers, seed = self._optuna.samplers, self._seed(attempt)
        if self._sweep.method == "tpe":
            return samplers.TPESampler(seed=seed, constant_liar=True)
        if self._sweep.method == "gp":
            return samplers.GPSampler(seed=seed)
        if self._sweep.method == "cmaes":
            return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        if self._sweep.method == "nsgaii":
            return samplers.NSGAIISampler(seed=seed)
        assert self._sweep.method not in ADAPTIVE
        return samplers.RandomSampler(seed=seed)

    def _pruner(self, history: list[dict[str, Any]]) -> Any:
        pruners, options = self._optuna.pruners, dict(self._sweep.early_stop or {"kind": "none"})
        kind = options.pop("kind")
        options.pop(spec.KILL_AFTER, None)  # used by the sweep driver only
        if kind in ("asha", "hyperband"):
            options.setdefault("min_step", 1)  # Optuna's "auto" would change as trials end
            options.setdefault("factor", 3)
        steps = [step for entry in history for step, _ in entry.get("curve") or []]
        if kind == "hyperband" and steps:
            options.setdefault("max_step", max(steps) + 1)
        meaning = {
            "after_step": "n_warmup_steps",
            "min_trials": "n_startup_trials",
            "every": "interval_steps",
            "percentile": "percentile",
            "min_step": "min_resource",
            "max_step": "max_resource",
            "factor": "reduction_factor",
            "rungs_skipped": "min_early_stopping_rate",
        }
        given = {meaning[option]: value for option, value in options.items()}
        if kind == "percentile":
            return pruners.PercentilePruner(**{"percentile": 25.0, **given})
        made = {
            "none": pruners.NopPruner,
            "median": pruners.MedianPruner,
            "hyperband": pruners.HyperbandPruner,
            "asha": pruners.SuccessiveHalvingPruner,
        }
        return made[str(kind)](**given)

    def _rungs(self, curve: list[Any]) -> dict[str, float]:
        """Recompute from the curve the rung values that Optuna stores while a trial runs."""
        stop = self._sweep.early_stop or {}
        if stop.get("kind") not in ("asha", "hyperband"):
            return {}
        least, factor, first = (
            int(str(stop.get(option, default)))
            for option, default in (("min_step", 1), ("factor", 3), ("rungs_skipped", 0))
        )
        if stop["kind"] == "hyperband":
            first = self._bracket()
        made: dict[str, float] = {}
        for rung in range(64):
            end = least * factor ** (first + rung)
            reached = [value for step, value in sorted(curve) if step >= end]
            if not reached:
                break
            made[f"completed_rung_{rung}"] = reached[0]
        return made

    def _bracket(self) -> int:
        """The Hyperband bracket of the next trial to be added."""
        pruner = self._study.pruner
        if not pruner._pruners:
            pruner._try_initialization(self._study)
        coming = SimpleNamespace(number=len(self._study.trials))
        return int(pruner._get_bracket_id(self._study, coming))


def _is_ordered(axis: Axis) -> bool:
    """Whether the values are increasing numbers, which the sampler should treat as ordered."""
    numbers = [value.data for value in getattr(axis.domains[0], "values", ())]
    if len(axis.domains) > 1 or len(numbers) < 3:
        return False
    if not all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers):
        return False
    return all(a < b for a, b in pairwise(numbers))


def _by_index(axis: Axis) -> bool:
    return len(axis.domains) > 1 or isinstance(axis.domains[0], (Choices, Steps))


def _is_real(domain: Domain) -> bool:
    """Whether the sampler gets the real numbers; other domains are given as places in [0, 1]."""
    return isinstance(domain, Continuous) and not domain.step and domain.shape in ("uniform", "log")


def _suggest_axis(trial: Any, name: str, axis: Axis) -> tuple[Value, ...]:
    domain = axis.domains[0]
    if _by_index(axis):
        assert axis.size is not None
        if isinstance(domain, Steps) or _is_ordered(axis):
            return axis.values(trial.suggest_int(name, 0, axis.size - 1))
        return axis.values(trial.suggest_categorical(name, list(range(axis.size))))
    if isinstance(domain, Whole):
        return axis.values(
            trial.suggest_int(name, domain.low, domain.high, log=domain.log) - domain.low
        )
    assert isinstance(domain, Continuous)
    if _is_real(domain):
        number = trial.suggest_float(name, domain.a, domain.b, log=domain.shape == "log")
        return (domain.near(number),)
    return (domain.at(min(trial.suggest_float(name, 0.0, 1.0), 1 - 1e-12)),)


def _distribution(distributions: Any, axis: Axis) -> Any:
    """The Optuna distribution that `_suggest_axis` uses for this axis."""
    domain = axis.domains[0]
    if _by_index(axis):
        assert axis.size is not None
        if isinstance(domain, Steps) or _is_ordered(axis):
            return distributions.IntDistribution(0, axis.size - 1)
        return distributions.CategoricalDistribution(list(range(axis.size)))
    if isinstance(domain, Whole):
        return distributions.IntDistribution(domain.low, domain.high, log=domain.log)
    assert isinstance(domain, Continuous)
    if _is_real(domain):
        return distributions.FloatDistribution(domain.a, domain.b, log=domain.shape == "log")
    return distributions.FloatDistribution(0.0, 1.0)


def _locate(axis: Axis, point: Point) -> float | int | None:
    if any(name not in point for name in axis.names):
        return None
    domain, data = axis.domains[0], point[axis.names[0]].data
    if len(axis.domains) > 1:
        wanted = point_key({name: point[name] for name in axis.names})
        for index in range(axis.size or 0):
            row = dict(zip(axis.names, axis.values(index), strict=True))
            if point_key(row) == wanted:
                return index
        return None
    place = domain.locate(data)
    if place is None:
        return None
    if isinstance(domain, Whole):
        return domain.low + int(place)
    if _is_real(domain):
        assert isinstance(domain, Continuous) and isinstance(data, (int, float))
        return min(max(float(data), domain.a), domain.b)
    return place


def _answers(requests: TextIO) -> Iterator[dict[str, object]]:
    search: Search | None = None
    for line in requests:
        request = json.loads(line)
        what = request.pop("do")
        failpoint(f"searcher.{what}")
        try:
            if what == "begin":
                optuna = importlib.import_module("optuna")
                optuna.logging.set_verbosity(optuna.logging.ERROR)
                search = Search(optuna, spec.from_json(request["spec"]), request["history"])
                yield {"ok": True}
            elif search is None:
                yield {"error": "the first request must be `begin`"}
            else:
                yield {"ok": getattr(search, what)(**request)}
        except ImportError as error:
            named = re.search(r"import '(\w+)'", str(error))  # Optuna's message for its extras
            yield {"error": str(error), "missing": error.name or (named[1] if named else None)}
        except Exception as error:  # the client must get an answer, whatever a library raises
            yield {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep the output of libraries out of the answers
    for answer in _answers(sys.stdin):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
