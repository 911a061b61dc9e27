"""Parse values of job options: text of a command line, or Python and JSON values.

A `Kind` has a function for each. Text has the same meaning in both; numbers are bytes, seconds, or
seconds since the epoch. Both raise UsageError with a message that does not name the option, because
only the caller knows how the user wrote it (`--gpu-mem`, `gpu_mem=`, a field of a form).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from stoker.core.formats.command_line import count, whole_number
from stoker.core.formats.durations import parse_duration
from stoker.core.formats.sizes import parse_size
from stoker.core.model import Dependency
from stoker.core.record import Record
from stoker.errors import Error, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ON_OOM = ("bigger", "elsewhere", "alone", "fail")
_CONDITIONS = ("ok", "any", "notok")


class Kind(Record):
    """The type of an option value. Both functions return the checked value or raise UsageError."""

    parse: Callable[[str], Any]  # text of a command line
    check: Callable[[Any], Any]  # a Python or JSON value


class Invalid(UsageError):
    """A Python or JSON value has the wrong type or size. The hint says what to write."""


def _invalid(value: object, hint: str) -> Invalid:
    return Invalid(f"has the value `{value!r}`, which is not valid", hint)


# -- numbers and switches ------------------------------------------------------------------------


def _check_whole(value: Any) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        number = None
    if number is None or isinstance(value, bool) or abs(number) >= 1 << 62:
        raise _invalid(value, "write a whole number, such as 2")
    return int(number)


def _check_count(value: Any) -> int:
    number = _check_whole(value)
    if number < 0:
        raise _invalid(value, "write 0 or more")
    return number


def _check_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _invalid(value, "write True or False")
    return value


# -- text ----------------------------------------------------------------------------------------


def check_text(value: Any, what: str = "") -> str:
    """Check text that is stored and passed to a program. `what` names it in errors."""
    if not isinstance(value, str):
        raise _invalid(value, "write text")
    problem = None
    if "\0" in value:
        problem = "contains a NUL byte"
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        problem = "contains characters that cannot be encoded"
    if problem is not None:
        raise UsageError(f"{what} {problem}") if what else Invalid(problem)
    return value


def check_path(value: Any, what: str = "") -> str:
    """Check a path: text, bytes or an `os.PathLike`. Returns text."""
    try:
        return check_text(os.fsdecode(value), what)
    except TypeError:
        raise _invalid(value, "write a path") from None


def _parse_path(text: str) -> str:
    if not text:
        raise UsageError("the path must not be empty")
    return text


def _parse_group(text: str) -> str:
    if not text.strip():
        raise UsageError("the name must not be empty", "write --group NAME")
    return text


def _parse_on_oom(text: str) -> str:
    if text not in ON_OOM:
        raise UsageError(f"`{text}` is not a valid action",
                         "write bigger, elsewhere, alone or fail")  # fmt: skip
    return text


def _parse_signal(text: str) -> str:
    from stoker.core.formats.limit_signal import parse_warning

    parse_warning(text)
    return text


# -- sizes and times -----------------------------------------------------------------------------


def _parse_memory(text: str) -> int | str:
    if text == "auto":
        return text
    size = parse_size(text)
    if not size:
        raise UsageError("the size must not be 0", "write 20G or auto")
    return size


def _check_size(value: Any) -> int:
    size = parse_size(value) if isinstance(value, str) else _check_count(value)
    if not size:
        raise _invalid(value, 'write "20G" or a number of bytes')
    return size


def _check_memory(value: Any) -> int | str:
    return "auto" if value == "auto" else _check_size(value)


def _check_duration(value: Any, bare: str) -> float:
    if isinstance(value, str):
        return parse_duration(value, bare)
    if hasattr(value, "total_seconds"):
        value = value.total_seconds()
    if isinstance(value, bool) or not hasattr(value, "__float__") or not 0 <= float(value) <= 1e10:
        raise _invalid(value, 'write "2h" or a number of seconds')
    return float(value)


def parse_time(text: str, now: float) -> float:
    """Seconds since the epoch of `+2h`, `now+30m`, `14:30` (the next one), `2026-12-24T18:00` or
    `2026-12-24 18:00`."""
    from datetime import datetime

    try:
        at = _time(text, now)
        datetime.fromtimestamp(at)  # raises for years that cannot be shown
        return at
    except (ValueError, Error, OverflowError, OSError):
        raise UsageError(
            f"`{text}` is not a time", "write 14:30, +2h or 2026-12-24T18:00"
        ) from None


def _time(text: str, now: float) -> float:
    from datetime import datetime, timedelta

    relative = text.removeprefix("now")
    if relative.startswith("+"):
        return now + parse_duration(relative[1:], "s")
    here = datetime.fromtimestamp(now)
    if text.count(":") in (1, 2) and len(text) <= 8:
        clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M")
        at = here.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
        return (at if at > here else at + timedelta(days=1)).timestamp()
    return datetime.fromisoformat(text).timestamp()


def time_of(value: Any, now: float) -> float:
    """Seconds since the epoch of text, a number, a datetime, or a timedelta from `now`."""
    from datetime import datetime

    if isinstance(value, str):
        return parse_time(value, now)
    try:
        if hasattr(value, "total_seconds"):
            return now + float(value.total_seconds())
        at = float(value.timestamp() if isinstance(value, datetime) else value)
        datetime.fromtimestamp(at)
        return at
    except (ValueError, TypeError, OverflowError, OSError):
        hint = 'write "+2h", "14:30", "2026-12-24T18:00", or give a datetime'
        raise _invalid(value, hint) from None


def _parse_begin(text: str) -> str:
    """Check the text. It is resolved when the job is submitted, so that `+2h` counts from then."""
    parse_time(text, 0.0)
    return text


def _check_begin(value: Any) -> Any:
    time_of(value, 0.0)
    return value


# -- lists ---------------------------------------------------------------------------------------


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(f"`{text}` is not a list of GPUs", "write 0,2 or UUIDs, each once")
    return names


def _check_names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return _parse_names(value)
    try:
        names = tuple(str(word).strip() for word in value)
    except TypeError:
        names = ()
    if not names or not all(names) or len(set(names)) != len(names):
        raise _invalid(value, "write [0, 2] or UUIDs, each once")
    return names


def parse_tags(text: str) -> tuple[str, ...]:
    """Split `a,b` into two tags, as in a selector."""
    tags = tuple(word.strip() for word in text.split(","))
    if not all(tags):
        raise UsageError("a tag must not be empty" if not text.strip() else
                         f"`{text}` has an empty tag")  # fmt: skip
    return tags


def _check_tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = (value,)
    return tuple(tag for text in value for tag in parse_tags(check_text(text, "a tag")))


def parse_pair(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `NAME=VALUE`, or `NAME` to copy the variable of this process."""
    key, equals, value = text.partition("=")
    if not key:
        raise UsageError(f"`{text}` is not an environment variable", "write NAME=VALUE")
    return ((key, value if equals else os.environ.get(key, "")),)


def _check_env(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = []
    for name, content in value.items():
        check_text(name, "the name of a variable")
        if not name or "=" in name:
            raise UsageError(f"`{name}` is not a valid name of an environment variable")
        if isinstance(content, (bool, int, float)):
            content = str(content)
        what = f"the variable `{name}`"
        try:
            pairs.append((name, check_path(content, what)))
        except Invalid as error:
            raise UsageError(f"{what} {error.message}", error.hint) from None
    return tuple(pairs)


def _parse_env_file(path: str) -> tuple[tuple[str, str], ...]:
    """The variables of a file with one NAME=VALUE per line."""
    pairs = []
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for number, raw in enumerate(file, 1):
                line = raw.strip().removeprefix("export ")
                if not line or line.startswith("#"):
                    continue
                key, equals, value = line.partition("=")
                if not equals or not key or "\0" in line:
                    raise UsageError(f"line {number} of `{path}` is not NAME=VALUE")
                pairs.append((key, value.strip("\"'") if value[:1] in "\"'" else value))
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    return tuple(pairs)


def _check_env_file(value: Any) -> tuple[tuple[str, str], ...]:
    files = (value,) if isinstance(value, (str, bytes, os.PathLike)) else value
    return tuple(pair for file in files for pair in _parse_env_file(check_path(file)))


def parse_dependencies(text: str) -> tuple[Dependency, ...]:
    """Parse `7`, `7:any` or `7,8:notok`."""
    return tuple(_dependency(part, "write 7, 7:ok, 7:any or 7:notok") for part in text.split(","))


def _dependency(text: str, hint: str) -> Dependency:
    job, _, condition = text.partition(":")
    is_id = job.isascii() and job.isdigit() and len(job) < 19
    if not is_id or (condition or "ok") not in _CONDITIONS:
        raise UsageError(f"`{text}` is not a dependency", hint)
    return Dependency(int(job), condition or "ok")


def _check_after(value: Any) -> tuple[Any, ...]:
    """Check dependencies. Jobs of the Python API stay as they are: their queue is checked when the
    job is submitted."""
    is_one = isinstance(value, (int, str, Dependency)) or hasattr(value, "state_dir")
    found: list[Any] = []
    for item in (value,) if is_one else value:
        if isinstance(item, Dependency) or hasattr(item, "state_dir"):
            found.append(item)
        else:
            found.append(_dependency(str(item), 'give a job, its id, or "7:any"'))
    return tuple(found)


WHOLE = Kind(whole_number, _check_whole)
COUNT = Kind(count, _check_count)
SWITCH = Kind(lambda text: True, _check_switch)
TEXT = Kind(lambda text: text, check_text)
PATH = Kind(_parse_path, check_path)
SIZE = Kind(parse_size, _check_size)
MEMORY = Kind(_parse_memory, _check_memory)
MINUTES = Kind(parse_duration, lambda value: _check_duration(value, "m"))
SECONDS = Kind(lambda text: parse_duration(text, "s"), lambda value: _check_duration(value, "s"))
BEGIN = Kind(_parse_begin, _check_begin)
SIGNAL = Kind(_parse_signal, lambda value: _parse_signal(check_text(value)))
WAY = Kind(_parse_on_oom, lambda value: _parse_on_oom(check_text(value)))
GROUP = Kind(_parse_group, lambda value: _parse_group(check_text(value)))
GPU_NAMES = Kind(_parse_names, _check_names)
TAGS = Kind(parse_tags, _check_tags)
ENV = Kind(parse_pair, _check_env)
ENV_FILE = Kind(_parse_env_file, _check_env_file)
AFTER = Kind(parse_dependencies, _check_after)
