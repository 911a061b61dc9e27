from __future__ import annotations

import random
from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.sweeps.spec import names
from stoker.features.sweeps.spec.arguments import from_words, space_from, split_words
from stoker.features.sweeps.spec.domains import continuous
from stoker.features.sweeps.spec.identity import identity
from stoker.features.sweeps.spec.methods import points
from stoker.features.sweeps.spec.search_space import Space, axis, make_space
from stoker.features.sweeps.spec.spec import SweepSpec
from stoker.features.sweeps.spec.values import Point, plain, point_key, typed
from stoker.features.sweeps.template.template import argv, shell


def sweep(*assignments: str, **options: object) -> SweepSpec:
    return from_words(["run {params}"], True, assignments, **options)  # type: ignore[arg-type]


def written(found: list[Point]) -> list[str]:
    return [" ".join(value.text for value in point.values()) for point in found]


def test_first_parameter_of_a_grid_varies_slowest() -> None:
    assert written(list(points(sweep("a=1,2", "b=x,y,z")))) == [
        "1 x", "1 y", "1 z", "2 x", "2 y", "2 z",
    ]  # fmt: skip


def test_shuffled_grid_has_the_order_of_simple_hypersearch() -> None:
    spec = from_words(
        ["run {a}{b}"], True, (), [("a", "123"), ("b", "xyz")], method="shuffled", seed=1
    )
    made = [spec.template.render(point).argv[0] for point in points(spec)]
    assert made == [f"run {w}" for w in "2z 3x 3y 2y 2x 1x 3z 1y 1z".split()]  # noqa: SIM905


@given(st.integers(), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=30)
def test_shuffled_grid_has_the_order_of_random_shuffle(seed: int, a: int, b: int) -> None:
    expected = [f"{x} {y}" for x, y in product(range(a), range(b))]
    random.Random(seed).shuffle(expected)
    spec = sweep(f"a=range({a})", f"b=range({b})", method="shuffled", seed=seed)
    assert written(list(points(spec))) == expected


@pytest.mark.parametrize("method", ["shuffled", "random", "lhs", "grid"])
@pytest.mark.parametrize(
    "assignments", [("a=range(30)", "b=x,y"), ("a=range(2000)", "b=range(2000)")]
)
def test_more_points_keep_the_first_ones_and_repeat_none(
    method: str, assignments: tuple[str, ...]
) -> None:
    if method == "shuffled" and "2000" in assignments[0]:
        assignments = ("a=range(700)", "b=range(700)")  # it has to be enumerable
    spec = sweep(*assignments, method=method, seed=3, trials=20)
    first, more = list(points(spec)), list(points(spec, 50))
    assert len(first) == 20 and len(more) == 50 and more[:20] == first
    assert len(set(map(point_key, more))) == 50
    assert list(points(spec)) == first


def test_random_search_in_a_small_space_yields_every_point() -> None:
    spec = sweep("a=range(7)", "b=x,y", method="random", seed=0, trials=100)
    assert len(list(points(spec))) == 14


def test_random_search_in_an_infinite_space_needs_a_number_of_trials() -> None:
    spec = sweep("lr=log(1e-5,1)", seed=0)
    assert spec.method == "random"
    with pytest.raises(UsageError, match="`lr` is continuous, so the sweep samples it at random"):
        points(spec)
    with pytest.raises(UsageError, match="`lr` is continuous, so method lhs needs --trials N"):
        points(sweep("lr=log(1e-5,1)", method="lhs", seed=0))
    assert len(list(points(spec, 5))) == 5


def test_latin_hypercube_samples_every_slice_once() -> None:
    spec = sweep(
        "a=interval(0,1)", "b=interval(0,1)", "c=int(0,9)", method="lhs", seed=1, trials=10
    )
    found = list(points(spec))
    for name in "ab":
        assert sorted(int(float(point[name].text) * 10) for point in found) == list(range(10))
    assert sorted(int(point["c"].text) for point in found) == list(range(10))


def test_seed_determines_the_points_and_is_kept() -> None:
    spec = sweep("a=range(1000)", method="random", trials=5)
    kept = spec.seeded("mine")
    assert kept.seed is not None and kept.seeded("other") == kept
    assert spec.seeded("mine") == kept != spec.seeded("other")
    assert list(points(kept)) == list(points(kept))
    assert list(points(kept)) != list(points(kept._replace(seed=kept.seed + 1)))


def test_grid_of_a_trillion_points_is_refused_without_enumeration() -> None:
    huge = [f"p{i}=range(1000)" for i in range(4)]
    spec = sweep(*huge)
    assert spec.space.size.points == 10**12 and spec.space.size.is_exact
    with pytest.raises(UsageError, match="1,000,000,000,000") as caught:
        points(spec)
    assert caught.value.hint and "random" in caught.value.hint
    with pytest.raises(UsageError, match="the limit is 1,000,000"):
        points(spec._replace(method="shuffled", seed=1))
    assert written(list(points(spec, 2))) == ["0 0 0 0", "0 0 0 1"]
    assert len(list(points(spec._replace(method="random", seed=1), 100))) == 100
    endless = sweep("a=range(0,1,1e-30)", "b=interval(0,1)", method="random", seed=1, trials=3)
    assert len(list(points(endless))) == 3
    with pytest.raises(UsageError, match="infinitely many"):
        points(endless._replace(method="grid", trials=None))


def test_parameter_with_a_false_condition_is_absent() -> None:
    spec = sweep("opt=sgd,adam", "wd=0,1e-4,1e-3", conditions={"wd": "opt == 'adam'"})
    assert written(list(points(spec))) == ["sgd", "adam 0", "adam 1e-4", "adam 1e-3"]
    assert spec.space.size.points == 6 and not spec.space.size.is_exact
    shuffled = points(spec._replace(method="shuffled", seed=5))
    assert sorted(written(list(shuffled))) == ["adam 0", "adam 1e-3", "adam 1e-4", "sgd"]


def test_condition_may_refer_to_later_and_absent_parameters() -> None:
    spec = sweep(
        "a=1,2", "b=1,2", "c=1,2",
        conditions={"a": "b == 2", "b": "c == 1"},
    )  # fmt: skip
    found = [{n: v.data for n, v in point.items()} for point in points(spec)]
    assert {"c": 2} in found and {"b": 1, "c": 1} in found and {"a": 2, "b": 2, "c": 1} in found
    assert len(found) == 4


def test_bad_condition_is_refused_when_the_sweep_is_made() -> None:
    with pytest.raises(UsageError, match="otp") as caught:
        sweep("opt=a,b", "wd=1,2", conditions={"wd": "otp == 'a'"})
    assert caught.value.hint == "did you mean `opt`?"
    with pytest.raises(UsageError, match="depends on itself"):
        sweep("a=1,2", "b=1,2", conditions={"a": "b == 1", "b": "a == 1"})
    with pytest.raises(UsageError, match="`x`, which is not a parameter"):
        sweep("a=1,2", conditions={"x": "a == 1"})
    dotted = sweep("opt.name=a,b", "wd=1,2", conditions={"wd": "opt_name == 'a'"})
    assert len(list(points(dotted))) == 3


def test_zipped_parameters_advance_together() -> None:
    spec = sweep("lr,bs=zip((1e-3,32),(1e-4,64),(1e-3,32.0))", "seed=1,2")
    assert written(list(points(spec))) == ["1e-3 32 1", "1e-3 32 2", "1e-4 64 1", "1e-4 64 2"]
    random_ones = points(spec._replace(method="random", seed=1))
    assert sorted(written(list(random_ones))) == sorted(written(list(points(spec))))


def test_union_of_grids_counts_shared_points_once() -> None:
    first, second = space_from(["a=1,2", "b=1,2"]), space_from(["a=2,3", "b=2"])
    union = make_space([*first.grids, *second.grids], [("fixed", typed("7"))])
    spec = SweepSpec(shell("run {params}"), union)
    assert written(list(points(spec))) == ["7 1 1", "7 1 2", "7 2 1", "7 2 2", "7 3 2"]
    assert union.size.points == 6 and not union.size.is_exact
    drawn = points(spec._replace(method="random", seed=1))
    assert len(list(drawn)) == 5


def test_union_with_an_infinite_grid_can_be_sampled() -> None:
    union = make_space([[axis("a", continuous("uniform", 0, 1))], *space_from(["b=1,2"]).grids])
    found = list(points(SweepSpec(shell("run {params}"), union, "random", 50, 1)))
    assert (
        len(found) == 50 and {"a"} in [set(p) for p in found] and {"b"} in [set(p) for p in found]
    )


@pytest.mark.parametrize(
    "assignments", [("a=1", "a=2"), ("a.b=1", "a_b=2"), ("a b=1",), ("a,a=zip((1,2))",)]
)
def test_parameter_names_that_clash_are_refused(assignments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        sweep(*assignments)


def test_space_survives_a_json_round_trip() -> None:
    from stoker.features.sweeps.spec import search_space as module

    space: Space = sweep("a,b=zip((1,[2]),(x,'1'))", "c=log(1,2)", conditions={"c": "a == 1"}).space
    assert module.from_json(space.to_json()) == space


def test_identity_depends_on_data_not_on_spelling() -> None:
    command = shell("run {lr}")

    def identity_of(**texts: str) -> str:
        return identity(command, {name: typed(text) for name, text in texts.items()})

    assert identity_of(lr="1e-3") == identity_of(lr="0.001") and identity_of(
        a="1", b="2"
    ) == identity_of(b="2", a="1.0")
    assert identity_of(a="true") != identity_of(a="1") and identity_of(a="1") != identity(
        command, {"a": plain("1")}
    )
    assert identity_of(lr="1e-3") != identity(argv(["run {lr}"]), {"lr": typed("1e-3")})
    assert identity_of(lr="1e-3") != identity(shell("run  {lr}"), {"lr": typed("1e-3")})
    assert len(identity_of(lr="1")) == 16 and int(identity_of(lr="1"), 16) >= 0
    assert (
        identity_of(lr="1e-3") == "f71325220122745a"
    )  # a change would run every known trial again


def test_words_are_split_into_command_and_parameters() -> None:
    assert split_words(["python t.py {lr}", "lr=1,2", "a,b=zip((1,2))"]) == (
        "python t.py {lr}", ["lr=1,2", "a,b=zip((1,2))"],
    )  # fmt: skip
    for wrong in ([], ["lr=1"], ["python", "t.py", "lr=1"]):
        with pytest.raises(UsageError):
            split_words(wrong)
    assert split_words(["X=1 python t.py {lr}", "lr=1"])[1] == ["lr=1"]


def test_generated_name_has_two_words_and_depends_on_the_seed() -> None:
    assert len(set(names.FIRST)) == 64 and len(set(names.SECOND)) == 64
    made = list(islice(iter(lambda: names.suggest(random.Random(7)), None), 2))
    assert made[0] == made[1] and names.check(made[0]) == made[0]


@pytest.mark.parametrize("name", ["", "7", "1.5", "ls", "RM", "a b", "-x", "a/b", "é", "1-2"])
def test_ambiguous_sweep_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        names.check(name)


@pytest.mark.parametrize("method", ["random", "lhs"])
def test_random_sample_of_a_large_space_needs_a_count(method: str) -> None:
    assert len(list(points(sweep("a=range(100)", method=method, seed=1)))) == 100
    with pytest.raises(UsageError, match=f"method {method} needs --trials N: .* 57,788 points"):
        points(sweep("a=range(57788)", method=method, seed=1))
    assert len(list(points(sweep("a=range(57788)", method=method, seed=1, trials=3)))) == 3
