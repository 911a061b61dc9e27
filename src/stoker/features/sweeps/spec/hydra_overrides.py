"""Write parameters as Hydra command-line overrides that Hydra parses back to the same values.

Hydra reads `x=true` as a boolean and `x='true'` as a string, splits at commas, and has its own
escape sequences. Grammar: https://hydra.cc/docs/advanced/override_grammar/basic/
"""

from __future__ import annotations

import re

from stoker.errors import UsageError
from stoker.features.sweeps.spec.values import Value

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Strings that need no quotes, unless they are one of _WORDS.
_BARE = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@%-]*")
_WORDS = ("true", "false", "null", "nan", "inf")
# Dict keys cannot be quoted. Special characters can only be escaped, and not all of them can.
_KEY = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@%\-+*?|$(){}\[\]:=, \t\\]*")
_ESCAPED_IN_KEYS = re.compile(r"([\\(){}\[\]:=, \t])")


def override(name: str, value: Value) -> str:
    """Return the override `name=value`.

    >>> override("lr", Value(0.001, "1e-3")), override("note", Value("a, b", "a, b"))
    ('lr=1e-3', "note='a, b'")
    >>> override("+db", Value({"user": "me", "ports": [1, None]}, ""))
    '+db={user:me,ports:[1,null]}'
    """
    data = value.data
    is_bool = isinstance(data, bool) and value.text.lower() in ("true", "false")
    is_number = isinstance(data, (int, float)) and _NUMBER.fullmatch(value.text) is not None
    # Keep the user's spelling where Hydra reads the same value: Hydra names folders after it.
    return f"{name}={value.text if is_bool or is_number else _rendered(data)}"


def _rendered(data: object) -> str:
    if data is None:
        return "null"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, (int, float)):
        return repr(data)
    if isinstance(data, list):
        return f"[{','.join(map(_rendered, data))}]"
    if isinstance(data, dict):
        return f"{{{','.join(f'{_key(key)}:{_rendered(part)}' for key, part in data.items())}}}"
    return _text(str(data))


def _text(text: str) -> str:
    if _BARE.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # A backslash is an escape only before a quote, also before the closing one.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    escaped = re.sub(r"(\\+)\Z", r"\1\1", escaped)
    return f"'{escaped}'"


def _key(key: str) -> str:
    is_plain = _KEY.fullmatch(key) is not None and key.lower() not in _WORDS
    if not is_plain or key != key.strip():
        raise UsageError(
            f"Hydra cannot parse the dict key `{key}` on a command line",
            "start keys with a letter and use only letters, digits, _ and -",
        )
    return _ESCAPED_IN_KEYS.sub(r"\\\1", key)
