"""Read YAML 1.2, in which `1e-3` is a number and `no` is a string.

PyYAML follows YAML 1.1, where `1e-3` is a string, `no` is false and `12:30:45` is 45045. Duplicate
keys are errors here; in PyYAML the last one wins silently.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from stoker.errors import Unavailable, UsageError

_TAG = "tag:yaml.org,2002:"
_RULES = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("merge", r"<<", "<"),
)


def parse(text: str, what: str = "the file") -> object:
    """Return the data of a YAML text. Raises UsageError if it is not valid, and Unavailable if
    PyYAML is not installed."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise Unavailable(
            "reading YAML needs the package pyyaml", "pip install 'stoker[yaml]'"
        ) from None
    try:
        return yaml.load(text, Loader=_loader(yaml))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UsageError(f"{what} is not valid YAML: {problem}{place}") from None
    except RecursionError:
        raise UsageError(f"{what} is nested too deeply") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # `!!bool x`, `!!int [x]`
        raise UsageError(f"{what} is not valid YAML: {error}") from None


def _loader(yaml: Any) -> Any:
    """Return a safe loader class with the YAML 1.2 rules; PyYAML is imported only on demand."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  drop those of YAML 1.1

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key.value, str):
                    raise yaml.constructor.ConstructorError(
                        None, None, "a key must not be a list or a table", key.start_mark
                    )
                if key.value in seen and key.tag != _TAG + "merge":
                    raise yaml.constructor.ConstructorError(
                        None, None, f"duplicate key `{key.value}`", key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    for kind, pattern, first in _RULES:
        Loader.add_implicit_resolver(_TAG + kind, re.compile(f"(?:{pattern})$"), list(first))
    Loader.add_constructor(_TAG + "int", _whole)
    Loader.add_constructor(_TAG + "float", _real)
    return Loader


def _whole(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _real(loader: Any, node: Any) -> float:
    text = loader.construct_scalar(node).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
