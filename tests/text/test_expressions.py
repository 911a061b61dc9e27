"""Conditions and filters: supported expressions, and refusal of all others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.text.filters.expressions import Expression

VALUES: dict[str, object] = {
    "lr": 0.001,
    "opt": "adam",
    "seed": 2,
    "nan": float("nan"),
    "flag": True,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("lr < 0.01", True),
        ("lr < 1e-4", False),
        ("opt == 'adam' and seed in (1, 2)", True),
        ("opt != 'adam' or not flag", False),
        ("0 < lr < 0.01", True),
        ("seed % 2 == 0", True),
        ("seed * 2 + 1 == 5", True),
        ("-seed == -2", True),
        ("missing == None", True),
        ("missing is None", True),
        ("missing < 3", False),
        ("opt < 3", False),
        ("nan < 1", False),
        ("seed / 0 == 1", False),
        ("flag", True),
    ],
)
def test_expression_has_the_value_that_python_gives(text: str, holds: bool) -> None:
    assert Expression(text).holds(VALUES) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "opt.__class__",
        "opt[0]",
        "lambda: 1",
        "[x for x in (1, 2)]",
        "9 ** 9",
        "1 << 3",
        "~seed",
        "f'{opt}'",
        "a := 1",
        "",
        "lr <",
        "(" * 500 + ")" * 500,
        "b'x' == 1",
        "1" * 3000,
    ],
)
def test_expression_with_calls_or_attributes_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Expression(text)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError) as caught:
        Expression("val_los < 1").check_names(["val_loss", "lr"])
    assert caught.value.hint == "did you mean `val_loss`?"


def test_evaluation_error_names_the_problem() -> None:
    with pytest.raises(UsageError, match="only numbers"):
        Expression("opt * 1000000000").evaluate(VALUES)


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_a_usage_error(text: str) -> None:
    try:
        Expression(text).holds(VALUES)
    except UsageError:
        pass


@pytest.mark.parametrize(
    "text",
    ["-" * 1900 + "1", "not " * 450 + "1", "1" + "+1" * 900, "[" * 150 + "]" * 150, "(" * 900],
)
def test_deep_expression_is_refused_in_every_depth_of_the_stack(text: str) -> None:
    with pytest.raises(UsageError, match=r"nested too deeply|is not an expression"):
        Expression(text)


def test_long_expression_that_is_not_deep_is_evaluated() -> None:
    assert Expression(" or ".join(["seed == 1"] * 100 + ["seed == 2"])).holds(VALUES)
    assert Expression("+".join(["1"] * 90)).evaluate(VALUES) == 90
