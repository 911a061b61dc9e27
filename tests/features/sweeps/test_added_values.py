"""Values and points that are added to a sweep."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stoker.errors import UsageError
from stoker.features.sweeps.files import toml_file
from stoker.features.sweeps.spec import methods, spec
from stoker.features.sweeps.spec.added_values import (
    extend_problem,
    make_point,
    values_problem,
    with_point,
    with_values,
)
from stoker.features.sweeps.spec.arguments import from_words, space_from
from stoker.features.sweeps.spec.identity import identity
from stoker.features.sweeps.spec.search_space import Axis
from stoker.features.sweeps.spec.spec import SweepSpec


def sweep(*assignments: str, **options: Any) -> SweepSpec:
    return from_words(["echo {params}"], True, assignments, name="s", **options)


def axes(*assignments: str) -> tuple[Axis, ...]:
    return space_from(assignments).grids[0]


def points(given: SweepSpec) -> list[dict[str, object]]:
    found = methods.points(given.seeded("s"))
    return [{name: value.data for name, value in point.items()} for point in found]


def identities(given: SweepSpec) -> set[str]:
    return {identity(given.template, point) for point in methods.points(given.seeded("s"))}


@pytest.mark.parametrize("method", ["grid", "shuffled", "random"])
def test_new_values_add_combinations_and_keep_the_identities_of_the_others(method: str) -> None:
    old = sweep("lr=1e-3,1e-4", "seed=range(3)", method=method, seed=1)
    new = with_values(old, axes("lr=1e-5", "seed=3"))
    assert len(points(new)) == 3 * 4
    assert identities(old) < identities(new)
    assert with_values(new, axes("lr=0.00001", "seed=3")) == new, "equal values are not new"


def test_text_of_existing_values_is_kept() -> None:
    new = with_values(sweep("lr=1e-3", "tag='07'"), axes("lr=0.001,0.1"))
    texts = [value["lr"].text for value in methods.points(new)]
    assert texts == ["1e-3", "0.1"]


def test_values_of_zipped_parameters_are_added_together() -> None:
    old = sweep("lr,bs=zip((1,32),(2,64))")
    new = with_values(old, axes("bs,lr=zip((128,3))"))
    assert points(new)[-1] == {"lr": 3, "bs": 128}
    with pytest.raises(UsageError, match="`lr, bs` have values together") as error:
        with_values(old, axes("lr=3"))
    assert error.value.hint == "write lr,bs=zip((...,...))"


def test_constant_with_another_value_becomes_a_parameter() -> None:
    table = {"command": "echo {params}", "params": {"lr": [1, 2], "epochs": {"value": 10}}}
    old = toml_file.from_table(table, ".")
    new = with_values(old, axes("epochs=20"))
    assert {(one["lr"], one["epochs"]) for one in points(new)} == {
        (1, 10), (1, 20), (2, 10), (2, 20),
    }  # fmt: skip
    assert identities(old) < identities(new)


@pytest.mark.parametrize(
    "added, message",
    [
        ("lrr=1", "the sweep has no parameter `lrr`"),
        ("lr=log(1,2)", "`lr` would have infinitely many values"),
        ("lr=range(1000001)", "values cannot be added to 1,000,001 others"),
    ],
)
def test_value_that_cannot_be_listed_is_refused(added: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        with_values(sweep("lr=1,2"), axes(added))


def test_sampled_and_adaptive_sweeps_explain_why_values_cannot_be_added() -> None:
    random = values_problem(sweep("lr=interval(0,1)", method="random", trials=5))
    assert random is not None
    assert random.reason == "runs 5 sampled trials, not every point"
    search = sweep("lr=interval(0,1)", method="tpe", metric=spec.make_metric("loss"))
    problem = values_problem(search)
    assert problem is not None
    assert (problem.reason, "clone s" in problem.hint) == ("chooses its values by tpe", True)
    assert values_problem(sweep("lr=1,2")) is None


def test_sweep_explains_why_it_cannot_be_extended() -> None:
    reasons = [
        extend_problem(sweep("lr=1,2")),
        extend_problem(sweep("lr=1,2", method="random", trials=4)),
        extend_problem(sweep("lr=interval(0,1)", method="tpe", metric=spec.make_metric("loss"))),
        extend_problem(sweep("lr=interval(0,1)", method="random", trials=4)),
    ]
    assert [one and one.reason for one in reasons] == [
        "already runs every point",
        "already runs all 2 points of its space",
        "has no limit on trials",
        None,
    ]


@pytest.mark.parametrize("method", ["grid", "random", "lhs"])
def test_point_is_one_more_trial_and_does_not_move_the_others(method: str) -> None:
    trials = None if method == "grid" else 4
    values = "lr=1,2" if method == "grid" else "lr=interval(0,1)"
    old = sweep(values, "seed=0,1", method=method, trials=trials, seed=1)
    new = with_point(old, axes("lr=7", "seed=9"))
    assert points(new) == [*points(old), {"lr": 7, "seed": 9}]
    assert with_point(new, axes("seed=9", "lr=7.0")) == new
    assert spec.from_json(json.loads(json.dumps(new.to_json()))) == new
    assert "points" not in old.to_json(), "release 0.1 cannot read this field"


def test_point_of_a_search_does_not_take_the_place_of_a_trial() -> None:
    old = sweep("lr=interval(0,1)", method="tpe", trials=5, metric=spec.make_metric("loss"))
    new = with_point(old, axes("lr=7"))
    assert (new.total_trials, with_point(new, axes("lr=7")).total_trials) == (6, 6)


def test_point_needs_one_value_of_every_parameter_that_is_used() -> None:
    condition = {"wd": "opt == 'adam'"}
    space = space_from(["opt=sgd,adam", "wd=0,1"], conditions=condition)
    assert list(make_point(space, axes("opt=sgd"))) == ["opt"]
    assert list(make_point(space, axes("wd=5", "opt=adam"))) == ["opt", "wd"]
    with pytest.raises(UsageError, match="the point has no value of `wd`"):
        make_point(space, axes("opt=adam"))
    with pytest.raises(UsageError, match="`wd`, which is used only if opt == 'adam'"):
        make_point(space, axes("opt=sgd", "wd=1"))
    with pytest.raises(UsageError, match="a point has one value of `opt`, not 2"):
        make_point(space, axes("opt=sgd,adam"))
