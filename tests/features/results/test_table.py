"""Rows: columns, filters, sorting, groups."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.results import table
from stoker.features.results.table import Row


def row(trial: int, params: dict[str, object], **metrics: object) -> Row:
    return Row(trial, 100 + trial, params, metrics, "done", 1.5 * trial)


ROWS = [
    row(1, {"arch": "vit", "lr": 0.1, "opt": "adam"}, val_loss=0.5, acc=0.7),
    row(2, {"arch": "vit", "lr": 0.01, "opt": "sgd"}, val_loss=0.2, acc=0.9),
    row(3, {"arch": "vit", "lr": 0.001, "opt": "adam"}, val_loss=math.nan),
    row(4, {"arch": "vit", "lr": 0.02, "opt": "adam"}),
]


def trials(rows: list[Row]) -> list[int | None]:
    return [row.trial for row in rows]


def test_columns_are_parameters_that_vary_then_metrics() -> None:
    assert table.columns(ROWS) == [
        "trial", "lr", "opt", "val_loss", "acc", "state", "seconds", "job",
    ]  # fmt: skip


def test_constant_parameters_are_shown_on_request() -> None:
    assert table.columns(ROWS, constants=True)[1:4] == ["lr", "opt", "arch"]


def test_parameter_missing_in_some_rows_varies() -> None:
    rows = [row(1, {"a": 1}), row(2, {"a": 1, "b": 2}), row(3, {"a": 1.0, "b": 2})]
    assert table.varying(rows) == ["b"]
    assert table.varying([row(1, {"a": 1}), row(2, {"a": True})]) == ["a"]


def test_metric_with_the_name_of_a_parameter_gets_a_prefix() -> None:
    rows = [row(1, {"lr": 1, "state": "x"}, lr=2, state="y", job=3)]
    known = table.Columns(rows)
    values = {name: known.reader(name)(rows[0]) for name in known.names}
    assert values == {
        "trial": 1, "job": 101, "state": "done", "seconds": 1.5, "lr": 1, "param.state": "x",
        "metric.lr": 2, "metric.state": "y", "metric.job": 3,
        "result": None, "cause": None, "exit": None,
    }  # fmt: skip


def test_prefixed_column_names_always_work() -> None:
    assert table.Columns(ROWS).find("metric.val_loss") == "val_loss"
    assert trials(table.sort(ROWS[:2], "param.lr")) == [2, 1]


def test_unknown_column_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        table.sort(ROWS, "val_los")
    assert caught.value.message == "unknown column `val_los`"
    assert caught.value.hint == "did you mean `val_loss`?"


@pytest.mark.parametrize(
    ("key", "descending", "order"),
    [
        ("val_loss", False, [2, 1, 3, 4]),
        ("val_loss", True, [1, 2, 3, 4]),
        ("-val_loss", False, [1, 2, 3, 4]),
        ("-val_loss", True, [2, 1, 3, 4]),
        ("val_loss:desc", False, [1, 2, 3, 4]),
        ("val_loss:asc", False, [2, 1, 3, 4]),
        ("opt,-lr", False, [1, 4, 3, 2]),
    ],
)
def test_rows_are_sorted_with_missing_last(key: str, descending: bool, order: list[int]) -> None:
    assert trials(table.sort(ROWS, key, descending)) == order


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())
)


@given(st.lists(VALUES), st.booleans())
def test_any_mix_of_values_can_be_sorted_and_grouped(values: list[object], down: bool) -> None:
    rows = [row(i, {"x": value}, y=value) for i, value in enumerate(values)]
    done = table.sort(rows, "x", down)
    assert sorted(trials(done), key=str) == sorted(trials(rows), key=str)
    missing = [one.params["x"] is None or one.params["x"] != one.params["x"] for one in done]
    assert missing == sorted(missing)
    assert sum(group.n + group.missing for group in table.group(rows, ["x"], "y")) == len(rows)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("lr < 0.05", [2, 3, 4]),
        ("opt == 'adam' and val_loss < 1", [1]),
        ("trial in (1, 4) or seconds == 3", [1, 2, 4]),
        ("job > 102", [3, 4]),
        ("state != 'done'", []),
        ("val_loss == None", [4]),
        ("`val_loss` < `metric.acc`", [1, 2]),
        ("opt == '`lr`'", []),
    ],
)
def test_rows_are_filtered_by_expressions(text: str, left: list[int]) -> None:
    assert trials(table.where(ROWS, text)) == left


def test_names_with_slashes_and_dots_need_backticks() -> None:
    rows = [row(i, {"opt.lr": i}, **{"val/loss": i / 10}) for i in range(4)]
    assert trials(table.where(rows, "`val/loss` > 0.1 and `opt.lr`!=3")) == [2]
    with pytest.raises(UsageError) as caught:
        table.where(rows, "`val/los` > 0.1")
    assert caught.value.hint == "did you mean `val/loss`?"
    with pytest.raises(UsageError, match="not closed"):
        table.where(rows, "`val/loss > 0.1")


def test_error_in_a_filter_quotes_the_filter_as_typed() -> None:
    with pytest.raises(UsageError) as caught:
        table.where(ROWS, "`val_loss` <")
    assert "``val_loss` <`" in caught.value.message


def test_empty_table_accepts_any_column() -> None:
    assert table.where([], "whatever < 3") == []
    assert table.sort([], "whatever") == []
    assert table.best([], "whatever", "min") is None
    assert table.group([], ["whatever"], "whatever") == []


def test_best_row_is_finite_and_the_first_of_equals() -> None:
    for goal, trial in (("min", 2), ("max", 1), ("maximize", 1)):
        found = table.best(ROWS, "val_loss", goal)
        assert found is not None
        assert found.trial == trial
    assert table.best([ROWS[2]], "val_loss", "min") is None
    same = [row(1, {}, a=1), row(2, {}, a=1)]
    assert table.best(same, "a", "max") is same[0]
    with pytest.raises(UsageError):
        table.best(ROWS, "val_loss", "down")


def test_groups_have_mean_and_spread_over_seeds() -> None:
    rows = [
        row(i, {"lr": lr, "seed": seed}, loss=loss)
        for i, (lr, seed, loss) in enumerate(
            [(0.1, 1, 1.0), (0.1, 2, 3.0), (0.2, 1, 5.0), (0.2, 2, math.nan)]
        )
    ]
    first, second = table.group(rows, ["lr"], "loss")
    assert first == table.Group({"lr": 0.1}, 2, 2.0, math.sqrt(2), 1.0, 3.0, 0, (0, 1))
    assert second == table.Group({"lr": 0.2}, 1, 5.0, None, 5.0, 5.0, 1, (2, 3))


@given(st.lists(st.floats(), min_size=1))
def test_groups_can_be_made_of_any_numbers(values: list[float]) -> None:
    (group,) = table.group([row(i, {}, x=v) for i, v in enumerate(values)], [], "x")
    assert group.n == sum(value == value for value in values)


def test_filter_without_matches_keeps_the_columns() -> None:
    known = table.Columns(ROWS)
    nothing = table.where(ROWS, "lr > 100", known)
    assert nothing == table.where(nothing, "acc > 0", known) == []
    assert table.sort(nothing, "val_loss", known=known) == []
    assert table.best_first(nothing, "metric.acc", "max", known) == []
    assert table.select_columns(nothing, ["trial", "metric.acc"], known) == (("trial", "acc"), [])
    with pytest.raises(UsageError, match="unknown column `los`"):
        table.where(nothing, "los > 0", known)


def test_comparison_that_fits_no_row_is_refused() -> None:
    with pytest.raises(UsageError, match="a number cannot be compared with a string"):
        table.where(ROWS, 'lr < "a"')
    mixed = [row(1, {"a": 1}), row(2, {"a": "x"}), row(3, {})]
    assert trials(table.where(mixed, "a < 2")) == [1]
    assert table.where([row(1, {}), row(2, {})], "trial > 1 and state < 1 and 1 > 2") == []


def test_groups_can_be_sorted_as_a_table() -> None:
    groups = table.grouped(ROWS, ["opt"], "acc")
    assert groups.names == ("opt", "n", "mean", "sd", "min", "max", "missing")
    assert [line[:3] for line in table.sort_lines(groups, "-mean").lines] == [
        ("sgd", 1, 0.9), ("adam", 1, 0.7),
    ]  # fmt: skip
    assert table.select_from_table(groups, ["mean", "opt"]).lines == [(0.7, "adam"), (0.9, "sgd")]
    with pytest.raises(UsageError, match="unknown column `men`"):
        table.sort_lines(groups, "men")
    clash = table.grouped([row(1, {"n": 1}, acc=1)], ["n"], "acc")
    assert clash.names[:3] == ("n", "group.n", "mean")


@pytest.mark.parametrize(("name", "meant"), [("time", "seconds"), ("status", "state")])
def test_other_name_of_a_fixed_column_is_suggested(name: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        table.sort([Row(1, 1, {"lr": 1}, {})], name)
    assert caught.value.hint == f"did you mean `{meant}`?"
