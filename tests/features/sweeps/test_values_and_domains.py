from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.sweeps.files import toml_file, wandb_file
from stoker.features.sweeps.spec import domains, other_names, spec, value_syntax
from stoker.features.sweeps.spec.arguments import from_words, space_from
from stoker.features.sweeps.spec.domains import (
    Choices,
    Continuous,
    Domain,
    Whole,
    choices,
    continuous,
    steps,
    whole,
)
from stoker.features.sweeps.spec.methods import points
from stoker.features.sweeps.spec.value_syntax import MAX_FILE_BYTES, parse, parse_assignment
from stoker.features.sweeps.spec.values import Value, from_data, key, typed
from stoker.features.sweeps.template import placeholders

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
def test_typed_value_keeps_its_text_and_gets_data(text: str, data: object) -> None:
    value = typed(text)
    assert value == Value(data, text) and type(value.data) is type(data)


@pytest.mark.parametrize("text", ["nan", "NaN", "-inf", "Infinity", "1e999", "a\0b"])
def test_non_finite_number_or_nul_byte_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        typed(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [("a b", "a b"), (0.001, "0.001"), (1e-05, "1e-05"), (True, "True"), (None, "None"),
     ([1, "a"], '[1, "a"]'), ({"a": 1}, '{"a": 1}'), (1.0, "1.0")],
)  # fmt: skip
def test_value_from_a_file_is_written_as_python_prints_it(data: object, text: str) -> None:
    assert from_data(data).text == text


@pytest.mark.parametrize("data", [math.nan, math.inf, [math.nan], {"a": -math.inf}, object(), "\0"])
def test_value_that_cannot_be_passed_to_a_program_is_refused(data: object) -> None:
    with pytest.raises(UsageError):
        from_data(data)


@given(JSON, JSON)
def test_equal_data_has_equal_keys_and_true_differs_from_one(a: object, b: object) -> None:
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
def test_value_syntax_gives_the_expected_values(spec: str, expected: list[str]) -> None:
    assert texts(spec) == expected


def test_quoted_value_is_a_string_and_bracketed_value_a_list() -> None:
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
def test_invalid_value_syntax_is_refused_with_a_hint(spec: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(spec, 1, what="lr")
    assert hint is None or hint in f"{caught.value.message} {caught.value.hint}"
    assert "lr=" in caught.value.message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("uniform(0,1)", "interval"), ("float(0,1)", "interval"), ("loguniform(1e-5,1)", "log"),
        ("log_uniform_values(1e-5,1)", "log"), ("lognormal(0,1)", "log"), ("randint(1,9)", "int"),
        ("suggest_float(0,1)", "interval"), ("suggest_int(1,9)", "int"), ("gauss(0,1)", "normal"),
        ("suggest_categorical(a,b)", "choice"), ("arange(5)", "range"), ("intreval(0,1)", "inter"),
        ("Uniform(0,1)", "interval"), ("LogUniform(1e-5,1)", "log"), ("choices(a,b)", "choice"),
        ("tune.uniform(0,1)", "interval"), ("hp.loguniform(1,2)", "log"), ("log10(1,2)", "log"),
        ("np.linspace(0,1,5)", "linspace"),
    ],
)  # fmt: skip
def test_function_of_another_tool_gets_the_name_used_here_as_hint(written: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(written, 1)
    assert (caught.value.hint or "").startswith(f"did you mean `{meant}")


def test_every_suggested_name_exists() -> None:
    for names, known in (
        (other_names.FUNCTIONS, value_syntax._FUNCTIONS),
        (other_names.METHODS, spec.METHODS),
        (other_names.GOALS, spec.GOALS),
        (other_names.STOP_KINDS, spec.EARLY_STOP_OPTIONS),
        (
            other_names.STOP_OPTIONS,
            ("kind", *(o for kind in spec.EARLY_STOP_OPTIONS.values() for o in kind)),
        ),
        (other_names.FILE_KEYS, toml_file._KEYS),
        (other_names.RESOURCES, spec.RESOURCES),
        (other_names.PARAMETER_KEYS, toml_file._PARAMETER),
        (other_names.METRIC_KEYS, ("name", "goal", "target")),
        (other_names.WANDB_METHODS, wandb_file._METHODS),
        (other_names.WANDB_DISTRIBUTIONS, wandb_file._DISTRIBUTIONS),
        (other_names.WANDB_KEYS, wandb_file._KEYS),
        (other_names.WANDB_PARAMETER_KEYS, wandb_file._ALL_KEYS),
        (other_names.PLACEHOLDERS, placeholders.SPECIAL),
    ):
        assert set(names.values()) <= set(known)
        assert not set(names) & set(known)


def test_zip_gives_rows_to_several_parameters() -> None:
    names, made = parse_assignment("lr,bs=zip((1e-3,32),(1e-4,'6,4'))")
    assert names == ("lr", "bs")
    assert [[d.value(i).text for d in made] for i in range(2)] == [["1e-3", "32"], ["1e-4", "6,4"]]
    with pytest.raises(UsageError, match="a row of zip has 1 values for 2 parameters"):
        parse_assignment("a,b=zip(1,2)")
    with pytest.raises(UsageError, match="several parameters need zip"):
        parse_assignment("a,b=1,2")


def test_p_option_accepts_values_or_one_domain() -> None:
    (axis,) = space_from([], [("lr", ["log(1e-3,1)"])]).grids[0]
    assert axis.domains == parse("log(1e-3,1)", 1)
    (axis,) = space_from([], [("name", ["f(x)", "a,b"])]).grids[0]
    assert [axis.domains[0].value(i).text for i in range(2)] == ["f(x)", "a,b"]
    with pytest.raises(UsageError, match="cannot be combined with other values"):
        space_from([], [("lr", ["0.1", "log(1e-3,1)"])])


def test_hydra_names_are_valid_parameter_names() -> None:
    spec = from_words(["run {params:hydra}"], True, ["model/opt=a,b", "+db.user=1", "x@y=2"])
    point = next(points(spec))
    assert spec.template.render(point).argv == ("run 'model/opt=a' '+db.user=1' 'x@y=2'",)


def test_file_has_one_value_per_line(tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_bytes(b"1\r\n\n0.10\na,b\n# no comment\n  x \nlast")
    (domain,) = parse("file(seeds.txt)", 1, str(tmp_path))
    texts = ["1", "0.10", "a,b", "# no comment", "  x ", "last"]
    assert [domain.value(i) for i in range(6)] == [typed(text) for text in texts]
    assert domain.size == 6


def test_infinite_file_is_not_read() -> None:
    with pytest.raises(UsageError, match="`/dev/zero` is not a regular file"):
        parse("file(/dev/zero)", 1)


def test_too_large_file_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(UsageError, match="`huge` is larger than 64 MiB"):
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
def test_text_of_a_sampled_value_equals_its_data(domain: Domain, u: float) -> None:
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
def test_domain_survives_a_json_round_trip(domain: Domain) -> None:
    import json

    assert domains.from_json(json.loads(json.dumps(domains.to_json(domain)))) == domain


@given(ANY_DOMAIN)
def test_finite_domain_has_as_many_values_as_its_size(domain: Domain) -> None:
    if domain.size is not None and domain.size < 2000:
        values = {key(domain.value(index).data) for index in range(domain.size)}
        assert len(values) == domain.size


def test_samples_are_short_but_resolve_narrow_intervals() -> None:
    assert continuous("log", 1e-5, 1e-1).at(0.123456789).text == "3.11765e-05"
    narrow = continuous("uniform", 1_000_000, 1_000_001)
    assert len({narrow.at(i / 100).text for i in range(100)}) == 100


def test_weights_determine_how_often_a_value_is_drawn() -> None:
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


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("linspace(0, 1, 5)", [0, 0.25, 0.5, 0.75, 1]),
        ("linspace(0.1,0.3,3)", [0.1, 0.2, 0.3]),
        ("geomspace(1e-4, 1e-1, 4)", [1e-4, 1e-3, 1e-2, 1e-1]),
        ("geomspace(16,1,5)", [16, 8, 4, 2, 1]),
        ("logspace(-4,-1,4)", [1e-4, 1e-3, 1e-2, 1e-1]),
        (r"a\,b,c", ["a,b", "c"]),
    ],
)
def test_spaced_values_and_escaped_commas_are_listed(text: str, values: list[object]) -> None:
    (domain,) = parse(text, 1)
    assert isinstance(domain, Choices)
    assert [value.data for value in domain.values] == values


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("linspace(0,1)", "linspace(1, 3, 5)"),
        ("linspace(0,1,1.5)", "linspace(1, 3, 5)"),
        ("geomspace(-5,-1,5)", "logspace(-5, -1, 5)"),
        ("logspace(1e-5,1e-1,5)", "geomspace(1e-5, 1e-1, 5)"),
    ],
)
def test_wrong_spaced_values_are_refused(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, 1)
    assert hint in (caught.value.hint or "")
