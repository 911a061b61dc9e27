"""The values of a parameter as text, which the parser reads as the same values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.sweeps.spec.arguments import space_from
from stoker.features.sweeps.spec.domains import Choices, Continuous, Domain, Whole, choices
from stoker.features.sweeps.spec.value_syntax import parse
from stoker.features.sweeps.spec.value_text import axis_key, axis_text, domain_text, edited_space
from stoker.features.sweeps.spec.values import Value, canonical, from_data, plain, typed

_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab'\"\\,()[]{} =", max_size=6),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(_DATA, min_size=1, max_size=4))
def test_listed_values_are_read_back(data: list[object]) -> None:
    domain = choices(tuple(from_data(one) for one in data))
    (read,) = parse(domain_text(domain), 1)
    assert isinstance(read, Choices)
    assert [canonical(one.data) for one in read.values] == [
        canonical(one.data) for one in domain.values
    ]


@pytest.mark.parametrize(
    "text",
    ["1e-3,0.10,true,none,adam", "range(0,10,2)", "range(5)", "range(0.1,0.5,0.1)", "int(1,8)",
     "interval(0.0,0.5)", "log(1e-05,0.1)", "normal(0,1)", "'07',7"],
)  # fmt: skip
def test_text_of_a_domain_is_read_as_the_same_domain(text: str) -> None:
    (domain,) = parse(text, 1)
    assert parse(domain_text(domain), 1) == (domain,)


def test_values_keep_the_text_that_the_user_typed() -> None:
    assert domain_text(Choices((typed("1e-3"), typed("0.10"), plain("1")))) == "1e-3,0.10,'1'"


@pytest.mark.parametrize(
    "domain",
    [
        Choices((Value(1, "1"), Value(2, "2")), (0.5, 1.0)),
        Whole(1, 1000, log=True),
        Continuous("uniform", 0.0, 1.0, 0.1),
        Continuous("lognormal", 0.0, 1.0),
    ],
)
def test_domain_that_the_syntax_lacks_is_refused_rather_than_read_as_another(
    domain: Domain,
) -> None:
    with pytest.raises(UsageError):
        parse(domain_text(domain), 1)


def test_zipped_parameters_have_one_key_and_one_text() -> None:
    (axis,) = space_from(["lr,opt=zip((1e-3,'a,b'),(1e-4,adam))"]).grids[0]
    text = f"{axis_key(axis)}={axis_text(axis)}"
    assert text == "lr,opt=zip((1e-3,'a,b'),(1e-4,adam))"
    assert space_from([text]).grids[0] == (axis,)


def test_edited_space_keeps_conditions_order_and_other_parameters() -> None:
    old = space_from(["opt=sgd,adam", "wd=0,1"], conditions={"wd": "opt == 'adam'"})
    (new,) = space_from(["wd=5"]).grids[0]
    edited = edited_space(old, [new])
    assert [(axis.names, axis.size, axis.when) for axis in edited.grids[0]] == [
        (("opt",), 2, None),
        (("wd",), 1, "opt == 'adam'"),
    ]
    assert edited_space(old, [], ["opt"]).names == ("opt",)
    (extra,) = space_from(["seed=1,2"]).grids[0]
    assert edited_space(old, [extra]).names == ("opt", "wd", "seed")
