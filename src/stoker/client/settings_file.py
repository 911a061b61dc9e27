"""Change the settings file: the rest of the text stays as it is, with its comments.

If the new text does not parse to exactly the intended settings, the file stays as it is.
"""

from __future__ import annotations

import json
import os
import re
import tomllib

from stoker.errors import Conflict, TryLater, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def read_text(path: str) -> str:
    """The text of the file; "" if it does not exist. Raises UsageError if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the settings file `{path}`: {error}") from None


def parse_tables(text: str, path: str) -> dict[str, Any]:
    """The tables of the text. Raises UsageError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"the settings file `{path}` is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"the settings file `{path}` is not valid TOML: {error}") from None


def literal_of(value: str) -> str:
    """The TOML literal of a value that a user typed: `4`, `true` and `["a"]`, otherwise a text."""
    try:
        found = tomllib.loads(f"x = {value}")
        is_value = "\n" not in value and found.keys() == {"x"}
        if is_value and isinstance(found["x"], bool | int | float | str | list | dict):
            return value.strip()
    except (ValueError, RecursionError):
        pass
    return json.dumps(value, ensure_ascii=False)


def with_value(text: str, key: list[str], literal: str) -> str:
    """The text with another value of a key; its comment stays. A new key joins its table."""
    *table, name = map(_key_text, key)
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    start, end = _part_of_table(lines, table)
    if start is None:
        gap = ["\n"] if lines and lines[-1].strip() else []
        return "".join([*lines, *gap, f"[{'.'.join(table)}]\n", f"{name} = {literal}\n"])
    for first in range(start, end):
        if re.match(rf"\s*{re.escape(name)}\s*=", lines[first]):
            last, comment = _extent(lines, first, end)
            lines[first:last] = [f"{name} = {literal}{comment}\n"]
            return "".join(lines)
    while start < end < len(lines) and lines[end - 1].lstrip().startswith("#"):
        end -= 1  # the comment of the next table
    while end > start and not lines[end - 1].strip():
        end -= 1
    blank = "\n" if end < len(lines) and lines[end].strip() else ""
    lines.insert(end, f"{name} = {literal}\n{blank}")
    return "".join(lines)


def _key_text(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _part_of_table(lines: list[str], table: list[str]) -> tuple[int | None, int]:
    """The first line after the header of a table, None if it has none, and the end of its keys."""
    wanted = f"[{'.'.join(table)}]"
    start: int | None = None if table else 0
    for number, line in enumerate(lines):
        bare = line.partition("#")[0].replace(" ", "").replace("\t", "").strip()
        if bare.startswith("[") and bare.endswith("]") and "=" not in line.partition("]")[0]:
            if start is not None:
                return start, number
            if bare == wanted:
                start = number + 1
    return start, len(lines)


def _extent(lines: list[str], first: int, end: int) -> tuple[int, str]:
    """The line after a value, which may have several lines, and the comment behind it."""
    for last in range(first + 1, end + 1):
        value = "".join(lines[first:last])
        if not _is_valid(value):
            continue
        for place, char in enumerate(value):
            if char == "#" and _is_valid(value[:place]):
                bare = value[:place].rstrip()
                return last, value[len(bare) :].rstrip("\n")
        return last, ""
    return first + 1, ""


def _is_valid(text: str) -> bool:
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def replace_file(path: str, text: str, wanted: dict[str, Any]) -> None:
    """Replace the file at once, readable only for its owner. Raises Conflict, TryLater."""
    try:
        is_right = _normal(tomllib.loads(text)) == _normal(wanted)
    except ValueError:
        is_right = False
    if not is_right:
        raise Conflict(
            f"the settings file `{path}` has a form that this command cannot change",
            "edit it: stoker config edit",
        )
    path = os.path.realpath(path)  # a link stays a link
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        mode = os.stat(path).st_mode & 0o700 | 0o600 if os.path.exists(path) else 0o600
        with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise TryLater(f"cannot write `{path}`: {error.strerror}") from None


def _normal(table: dict[str, Any]) -> dict[str, Any]:
    """The settings without empty tables for notifications, which mean nothing."""
    notify = {key: value for key, value in table.get("notify", {}).items() if value != {}}
    rest = {key: value for key, value in table.items() if key != "notify"}
    return {**rest, "notify": notify} if notify else rest
