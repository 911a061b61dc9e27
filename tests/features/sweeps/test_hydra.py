"""Hydra's own parser reads `{params:hydra}` as exactly the values of the sweep."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.features.sweeps.spec.value_syntax import parse, parse_assignment
from stoker.features.sweeps.spec.values import Value, from_data
from stoker.features.sweeps.template.template import Template, override

OverridesParser: Any = pytest.importorskip(
    "hydra.core.override_parser.overrides_parser", reason="hydra-core is not installed"
).OverridesParser
PARSER = OverridesParser.create()


def same(a: object, b: object) -> bool:
    """Whether two values are equal and have the same types at every level."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        assert isinstance(b, list)
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        assert isinstance(b, dict)
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return a == b


def read(line: str) -> Any:
    """Parse a word of the command line as a single override."""
    [found] = PARSER.parse_overrides([line])
    assert not found.is_sweep_override(), line
    return found


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
awkward = st.text(st.sampled_from("\\'\"${}[](),:=~+@/ \t\n.1eE-ntrufalsé"))
keys = st.text(string.ascii_letters + "_", min_size=1).filter(
    lambda key: key.lower() not in ("true", "false", "null", "nan", "inf")
)
scalars = (
    st.none() | st.booleans() | st.integers() | texts | awkward
    | st.floats(allow_nan=False, allow_infinity=False)
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)


@given(values)
@example("")
@example(" a ")
@example("\\")
@example("\\'")
@example("'\\")
@example("a\\b'c\\\\")
@example("1_000")
@example("${a}")
@example("\n")
@example([[], {}, [""]])
def test_hydra_parses_every_value_unchanged(data: object) -> None:
    line = override("x", from_data(data))
    assert same(read(line).value(), data), line


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("1e-3", "x=1e-3"), ("0.10", "x=0.10"), ("+5", "x=+5"), ("True", "x=True"),
        ("none", "x=null"), ("null", "x=null"), ("'null'", "x='null'"), ("'true'", "x='true'"),
        ("'1'", "x='1'"), ("007", "x='007'"), ("resnet50", "x=resnet50"), ("a/b-c.d", "x=a/b-c.d"),
        ("two words", "x='two words'"), ("'a,b'", "x='a,b'"), ("''", "x=''"),
        ("'it\\'s'", "x='it\\'s'"), ("'choice(1,2)'", "x='choice(1,2)'"), ("a=b", "x='a=b'"),
        ("[1,a,'b c']", "x=[1,a,'b c']"), ('{"a b": [true, null]}', "x={a\\ b:[true,null]}"),
        ("C:\\new", "x='C:\\new'"), ("größe", "x='größe'"), ("'  '", "x='  '"),
        ("inf_name", "x=inf_name"), ("'nan'", "x='nan'"), ("$HOME", "x='$HOME'"),
    ],
)  # fmt: skip
def test_typed_value_becomes_an_override_that_hydra_parses_back(typed: str, line: str) -> None:
    [domain] = parse(typed, 1)
    [value] = domain.values  # type: ignore[union-attr]
    assert override("x", value) == line
    assert same(read(line).value(), value.data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lr", "CHANGE"), ("a.b.c", "CHANGE"), ("+a.b", "ADD"), ("++a.b", "FORCE_ADD"),
        ("~a.b", "DEL"), ("model/opt", "CHANGE"), ("db@pkg.x", "CHANGE"), ("+model/opt@pkg", "ADD"),
    ],
)  # fmt: skip
def test_hydra_override_name_is_a_valid_parameter_name(name: str, kind: str) -> None:
    names, _ = parse_assignment(f"{name}=1,2")
    found = read(override(names[0], Value("a b", "a b")))
    assert (found.type.name, found.value()) == (kind, "a b")


@pytest.mark.parametrize("key", ["", "1", "true", "Null", "it's", 'a"b', "größe", " a", "1.5"])
def test_dict_key_that_hydra_cannot_parse_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="Hydra cannot parse the dict key"):
        override("x", from_data({key: 1}))


@given(st.dictionaries(st.text(string.printable, min_size=1), st.integers(), min_size=1))
def test_dict_key_is_parsed_back_or_refused(data: dict[str, int]) -> None:
    try:
        line = override("x", from_data(data))
    except UsageError:
        return
    assert same(read(line).value(), data), line


def test_template_renders_overrides_with_hydra_quotes() -> None:
    template = Template(("run", "{params:hydra}"), False)
    point = {"a": Value("x, y", "x, y"), "b": Value(1, "1"), "c": Value(None, "None")}
    assert template.render(point, 1, "/tmp").argv == ("run", "a='x, y'", "b=1", "c=null")
