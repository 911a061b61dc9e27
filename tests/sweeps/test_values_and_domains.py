from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.sweeps import domains
from stoker.sweeps.arguments import from_words, space_from
from stoker.sweeps.domains import (
    Choices,
    Continuous,
    Domain,
    Whole,
    choices,
    continuous,
    steps,
    whole,
)
from stoker.sweeps.methods import points
from stoker.sweeps.value_syntax import LARGEST_FILE, parse, parse_assignment
from stoker.sweeps.values import Value, from_data, key, typed

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=5,
)


def texts(spec: str) -> list[str]:
    (domain,) = parse(spec, 1)
    assert domain.size is not None
    return [domain.value(index).text for index in range(domain.size)]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("1e-3", 0.001), ("0.10", 0.1), ("007", "007"), ("-1", -1), ("+2", 2), (".5", 0.5),
        ("true", True), ("False", False), ("null", None), ("None", None), ("adam", "adam"),
        ("1_000", "1_000"), ("0x10", "0x10"), ("1e-3x", "1e-3x"), ("9" * 400, "9" * 400),
    ],
)  # fmt: skip
def test_what_is_typed_keeps_its_text_and_gets_a_meaning(text: str, data: object) -> None:
    value = typed(text)
    assert value == Value(data, text) and type(value.data) is type(data)


@pytest.mark.parametrize("text", ["nan", "NaN", "-inf", "Infinity", "1e999", "a\0b"])
def test_a_value_that_is_no_number_or_no_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        typed(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [("a b", "a b"), (0.001, "0.001"), (1e-05, "1e-05"), (True, "True"), (None, "None"),
     ([1, "a"], '[1, "a"]'), ({"a": 1}, '{"a": 1}'), (1.0, "1.0")],
)  # fmt: skip
def test_what_comes_from_a_file_is_written_as_python_prints_it(data: object, text: str) -> None:
    assert from_data(data).text == text


@pytest.mark.parametrize("data", [math.nan, math.inf, [math.nan], {"a": -math.inf}, object(), "\0"])
def test_a_file_cannot_hold_values_that_no_program_can_be_given(data: object) -> None:
    with pytest.raises(UsageError):
        from_data(data)


@given(JSON, JSON)
def test_equal_data_has_equal_keys_and_true_is_not_one(a: object, b: object) -> None:
    assert key(a) == key(a)
    assert key(True) != key(1) and key(1) == key(1.0) and key([1e-3]) == key([0.001])
    if type(a) is type(b) and a != b:
        assert key(a) != key(b)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("1e-3,0.10,x", ["1e-3", "0.10", "x"]),
        ("choice(a, b)", ["a", "b"]),
        ("range(3)", ["0", "1", "2"]),
        ("range(5,1,-2)", ["5", "3"]),
        ("range(0,1,0.25)", ["0.0", "0.25", "0.5", "0.75"]),
        ("range(0,0.3,0.1)", ["0.0", "0.1", "0.2"]),
        ("'a,b',\"c(d)\",it's", ["a,b", "c(d)", "it's"]),
        (r"'it\'s','back\\slash'", ["it's", "back\\slash"]),
        ("[1,2],[3,[4,x]]", ["[1,2]", "[3,[4,x]]"]),
        ('{"a": [1, 2]}', ['{"a": [1, 2]}']),
        ("int(1,3)", ["1", "2", "3"]),
        ("''", [""]),
        ("a b,c", ["a b", "c"]),
        ("1,1.0,1e0", ["1"]),
    ],
)
def test_the_grammar_of_values(spec: str, expected: list[str]) -> None:
    assert texts(spec) == expected


def test_what_is_quoted_is_a_text_and_what_is_in_brackets_a_list() -> None:
    (domain,) = parse("'1',[1,2.5,a,'2']", 1)
    assert isinstance(domain, Choices)
    assert [value.data for value in domain.values] == ["1", [1, 2.5, "a", "2"]]


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("lgo(1,2)", "log"), ("f(x),2", "quote"), ("", "''"), ("a,,b", "''"), ("'a", None),
        ("range(1,1)", "end"), ("range(1,2,0)", None), ("log(0,1)", None), ("log(2,1)", "smaller"),
        ("int(1.5,2)", None), ("interval(a,b)", None), ("zip((1,2))", "zip"), ("[1,2", "quote"),
        ("file(/nowhere)", None), ("{a:1}", "JSON"), ('{"a": 1e999}', "quote"), ("normal(0)", None),
        ("'a'b", "quote"), ("log(1,2),log(3,4)", "quote"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_hint(spec: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(spec, 1, what="lr")
    assert hint is None or hint in f"{caught.value.message} {caught.value.hint}"
    assert "lr=" in caught.value.message


def test_zip_gives_rows_to_several_parameters() -> None:
    names, made = parse_assignment("lr,bs=zip((1e-3,32),(1e-4,'6,4'))")
    assert names == ("lr", "bs")
    assert [[d.value(i).text for d in made] for i in range(2)] == [["1e-3", "32"], ["1e-4", "6,4"]]
    with pytest.raises(UsageError, match="row of 1"):
        parse_assignment("a,b=zip(1,2)")
    with pytest.raises(UsageError, match="rows"):
        parse_assignment("a,b=1,2")


def test_a_parameter_by_words_may_be_a_domain() -> None:
    (axis,) = space_from([], [("lr", ["log(1e-3,1)"])]).grids[0]
    assert axis.domains == parse("log(1e-3,1)", 1)
    (axis,) = space_from([], [("name", ["f(x)", "a,b"])]).grids[0]
    assert [axis.domains[0].value(i).text for i in range(2)] == ["f(x)", "a,b"]
    with pytest.raises(UsageError, match="stands beside values"):
        space_from([], [("lr", ["0.1", "log(1e-3,1)"])])


def test_names_of_hydra_are_names() -> None:
    spec = from_words(["run {params:hydra}"], True, ["model/opt=a,b", "+db.user=1", "x@y=2"])
    point = next(points(spec))
    assert spec.template.render(point).argv == ("run 'model/opt=a' '+db.user=1' 'x@y=2'",)


def test_a_file_has_one_value_a_line(tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_bytes(b"1\r\n\n0.10\na,b\n# no comment\n  x \nlast")
    (domain,) = parse("file(seeds.txt)", 1, str(tmp_path))
    texts = ["1", "0.10", "a,b", "# no comment", "  x ", "last"]
    assert [domain.value(i) for i in range(6)] == [typed(text) for text in texts]
    assert domain.size == 6


def test_a_file_without_end_is_not_read() -> None:
    with pytest.raises(UsageError, match="`/dev/zero` is no regular file"):
        parse("file(/dev/zero)", 1)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(LARGEST_FILE + 1)
    with pytest.raises(UsageError, match="`huge` has more than 64 MB"):
        parse("file(huge)", 1, str(tmp_path))


ANY_DOMAIN: st.SearchStrategy[Domain] = st.one_of(
    st.lists(JSON, min_size=1, max_size=5).map(lambda d: choices(tuple(map(from_data, d)))),
    st.tuples(st.integers(-9, 9), st.integers(0, 9)).map(lambda t: whole(t[0], t[0] + t[1])),
    st.integers(1, 99).map(lambda n: whole(n, 3 * n, log=True)),
    st.tuples(st.integers(1, 50), st.sampled_from(["1", "0.1", "-0.5"])).map(
        lambda t: steps("0", str(t[0] * (1 if t[1][0] != "-" else -1)), t[1])
    ),
    st.tuples(
        st.sampled_from(["uniform", "log"]), st.floats(1e-9, 1e3), st.floats(1e-3, 1e3),
        st.none() | st.sampled_from([1, 8, 0.25]),
    ).map(lambda t: continuous(t[0], t[1], t[1] + t[2], t[3])),
    st.tuples(st.sampled_from(["normal", "lognormal"]), st.floats(-3, 3), st.floats(0, 2)).map(
        lambda t: continuous(*t)
    ),
)  # fmt: skip


@given(ANY_DOMAIN, st.floats(0, 1, exclude_max=True))
def test_every_place_has_a_value_whose_text_is_the_value(domain: Domain, u: float) -> None:
    value = domain.at(u)
    if isinstance(value.data, float):
        assert float(value.text) == value.data
    if (
        isinstance(domain, Continuous)
        and domain.step is None
        and domain.shape in ("uniform", "log")
    ):
        assert isinstance(value.data, float) and domain.a <= value.data <= domain.b
    if isinstance(domain, Whole):
        assert isinstance(value.data, int) and domain.low <= value.data <= domain.high
    assert domain.locate(value.data) is not None


@given(ANY_DOMAIN)
def test_a_domain_survives_the_store(domain: Domain) -> None:
    import json

    assert domains.from_json(json.loads(json.dumps(domains.to_json(domain)))) == domain


@given(ANY_DOMAIN)
def test_finite_domains_have_as_many_values_as_they_say(domain: Domain) -> None:
    if domain.size is not None and domain.size < 2000:
        values = {key(domain.value(index).data) for index in range(domain.size)}
        assert len(values) == domain.size


def test_samples_are_short_and_narrow_intervals_keep_their_resolution() -> None:
    assert continuous("log", 1e-5, 1e-1).at(0.123456789).text == "3.11765e-05"
    narrow = continuous("uniform", 1_000_000, 1_000_001)
    assert len({narrow.at(i / 100).text for i in range(100)}) == 100


def test_weights_decide_how_often_a_value_comes() -> None:
    domain = choices(tuple(map(typed, "abc")), (0.0, 3.0, 1.0))
    drawn = [domain.at(i / 100).text for i in range(100)]
    assert (drawn.count("a"), drawn.count("b"), drawn.count("c")) == (0, 75, 25)


@pytest.mark.parametrize("text", ["[" * 900 + "]" * 900, "[" * 51 + "1" + "]" * 51])
def test_deep_list_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="nested too deeply"):
        parse_assignment(f"a={text}")
    parse_assignment("a=" + "[" * 50 + "1" + "]" * 50 + ",[1],[[2]]")


def test_number_that_python_cannot_print_is_refused() -> None:
    with pytest.raises(UsageError, match="300 digits"):
        from_data(16**9000)
