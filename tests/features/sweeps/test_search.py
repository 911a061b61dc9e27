"""The search client with real search processes that run Optuna."""

from __future__ import annotations

import math
import sys

import pytest

from stoker.errors import Unavailable
from stoker.features.sweeps.search.search_client import KnownTrial, ProposedTrial, SearchClient
from stoker.features.sweeps.spec.arguments import from_words
from stoker.features.sweeps.spec.spec import SweepSpec, make_metric


def sweep(*assignments: str, **options: object) -> SweepSpec:
    given: dict[str, object] = {"method": "tpe", "seed": 1, "metric": make_metric("loss")}
    return from_words(["run {params}"], True, assignments, **(given | options))  # type: ignore[arg-type]


def data(proposed: ProposedTrial) -> dict[str, object]:
    return {name: value.data for name, value in proposed.point.items()}


def loss(params: dict[str, object]) -> float:
    lr = params["lr"]
    assert isinstance(lr, float)
    return (math.log10(lr) + 3) ** 2 + (params["opt"] != "adam")


def child(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.fixture(scope="module")
def past() -> list[KnownTrial]:
    """Thirty trials, each reported before the next one was requested."""
    pytest.importorskip("optuna")
    found = []
    with SearchClient(SPEC) as search:
        for _ in range(30):
            (proposed,) = search.ask()
            value = loss(data(proposed))
            search.tell(proposed.number, "done", value)
            found.append(KnownTrial(proposed.number, data(proposed), "done", value, ((0, value),)))
    return found


SPEC = sweep(
    "lr=log(1e-5,1e-1)", "opt=sgd,adam", "wd=0,1e-4,1e-3", "noise=normal(0,1)", "k=range(3)",
    "i=int(1,9)", "a,b=zip((1,x),(2,y))", conditions={"wd": "opt == 'adam'"},
)  # fmt: skip


def test_search_improves_and_repeats_no_point(past: list[KnownTrial]) -> None:
    values = [entry.value for entry in past if entry.value is not None]
    assert [entry.number for entry in past] == list(range(1, 31))
    assert sum(values[-10:]) < sum(values[:10])
    assert len({str(entry.params) for entry in past}) == 30


def test_proposed_trials_respect_conditions_and_zips(past: list[KnownTrial]) -> None:
    for entry in past:
        assert ("wd" in entry.params) == (entry.params["opt"] == "adam")
        assert (entry.params["a"], entry.params["b"]) in [(1, "x"), (2, "y")]
        assert entry.params["k"] in (0, 1, 2) and entry.params["i"] in range(1, 10)


def test_restarted_search_proposes_the_same_trials(past: list[KnownTrial]) -> None:
    with SearchClient(SPEC, past) as one, SearchClient(SPEC, past) as other:
        proposed = one.ask(3)
        assert proposed == other.ask(3) and [a.number for a in proposed] == [31, 32, 33]
    with SearchClient(SPEC, past[:20]) as shorter:
        (again,) = shorter.ask()
        for name, value in data(again).items():  # samples were rounded when they were stored
            known = past[20].params[name]
            assert value == (pytest.approx(known, rel=1e-3) if type(known) is float else known)


def test_history_with_trials_in_every_state_is_accepted(past: list[KnownTrial]) -> None:
    states = ["done", "failed", "running", "stopped"]
    mixed = [entry._replace(state=states[i % 4]) for i, entry in enumerate(past[:12])]
    mixed.append(
        KnownTrial(12, {"lr": 7.0, "opt": "gone"}, "running")
    )  # from an earlier version of the space
    with SearchClient(SPEC, mixed) as search:
        (proposed,) = search.ask()
        assert proposed.number == 13
        search.tell(2, "done", 0.5)
        search.tell(12, "done", 0.5)
        search.tell(proposed.number, "failed")
        search.tell(proposed.number, "failed")
        assert not search.report(12, 1, 3.0) and not search.report(0, 1, 3.0)


def test_search_of_a_small_space_ends(past: list[KnownTrial]) -> None:
    with SearchClient(sweep("x=1,2,3", "y=a,b")) as search:
        found = [tuple(data(proposed).values()) for proposed in search.ask(20)]
        assert len(found) == len(set(found)) == 6 and search.ask(1) == []


def test_union_of_grids_can_be_searched(past: list[KnownTrial]) -> None:
    both = sweep("x=1,2")
    both = both._replace(
        space=both.space._replace(grids=both.space.grids + sweep("z=5,6").space.grids)
    )
    with SearchClient(both) as search:
        proposed = search.ask(9)
        assert sorted(str(data(one)) for one in proposed) == [
            "{'x': 1}",
            "{'x': 2}",
            "{'z': 5}",
            "{'z': 6}",
        ]
    history = [KnownTrial(one.number, data(one), "done", 1.0) for one in proposed[:3]]
    with SearchClient(both, history) as search:
        assert [data(one) for one in search.ask(9)] == [data(proposed[3])]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ({"kind": "median", "min_trials": 2, "after_step": 1}, True),
        ({"kind": "percentile", "min_trials": 2, "percentile": 50}, True),
        ({"kind": "asha", "min_step": 1, "factor": 2}, True),
        ({"kind": "hyperband", "min_step": 1, "max_step": 4, "factor": 2}, True),
        ({"kind": "none"}, False),
        (None, False),
    ],
)
def test_trial_that_falls_behind_is_stopped(
    past: list[KnownTrial], stop: dict[str, object] | None, expected: bool
) -> None:
    spec = sweep("x=range(100)", early_stop=stop, method="grid")
    curve = tuple((step, 1.0) for step in range(9))
    history = [KnownTrial(n, {"x": n}, "done", 1.0, curve) for n in range(8)]
    history.append(KnownTrial(8, {"x": 8}, "running"))
    with SearchClient(spec, history) as search:
        assert any([search.report(8, step, 99.0) for step in range(9)]) is expected
    open_ones = [KnownTrial(n, {"x": n}, "running") for n in range(9)]
    with SearchClient(spec, open_ones) as search:  # curves sent with the final results
        for n in range(8):
            search.tell(n, "done", 1.0, curve)
        assert any([search.report(8, step, 99.0) for step in range(9)]) is expected
    if stop and stop["kind"] == "median":
        with SearchClient(spec, history) as search:
            assert not any([search.report(8, step, 0.5) for step in range(9)])
        upward = spec._replace(metric=make_metric("acc", "max"))
        with SearchClient(upward, history) as search:
            assert not any([search.report(8, step, 99.0) for step in range(9)])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit('boom')", "boom"),
        ("input(); print('rubbish', flush=True); input()", "invalid answer"),
        ("input(); print('{}', flush=True); input()", "invalid answer"),
        ("input(); print('[1]', flush=True); input()", "invalid answer"),
        ("input(); import os; os.kill(os.getpid(), 9)", "died"),
        ("import time; time.sleep(60)", "did not answer"),
    ],
)
def test_broken_search_process_is_unavailable_without_a_hang(code: str, expected: str) -> None:
    timeout = 0.3 if "sleep" in code else 30
    with pytest.raises(Unavailable, match=expected):
        SearchClient(SPEC, timeout=timeout, command=child(code))


def test_search_process_that_cannot_start_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot start the search process"):
        SearchClient(SPEC, command=("/nowhere/python",))


def test_search_process_that_does_not_read_times_out() -> None:
    long = [KnownTrial(n, {"x": "y" * 1000}, "failed") for n in range(200)]
    with pytest.raises(Unavailable, match="does not read its requests"):
        SearchClient(SPEC, long, timeout=0.3, command=child("import time; time.sleep(60)"))


def test_error_without_optuna_has_an_install_hint() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from stoker.features.sweeps.search.search_process import main; main()"
    )
    with pytest.raises(Unavailable, match="optuna") as caught:
        SearchClient(SPEC, command=child(code))
    assert caught.value.hint == "pip install 'stoker[search]'"


def test_error_in_the_search_process_is_raised_and_closes_it(past: list[KnownTrial]) -> None:
    with SearchClient(SPEC) as search:
        with pytest.raises(Unavailable, match="TypeError"):
            search._call({"do": "ask", "count": None})
        with pytest.raises(Unavailable, match="was closed"):
            search.ask()
