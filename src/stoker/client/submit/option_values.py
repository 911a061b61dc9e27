"""Parse values of job options: text of a command line, or Python and JSON values.

A `Kind` has a function for each. Text has the same meaning in both; numbers are bytes, seconds, or
seconds since the epoch. Both raise Invalid or another UsageError with a message that does not name
the option, because only the caller knows how the user wrote it (`--gpu-mem`, `gpu_mem=`, a field of
a form); see `name_option`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping

from stoker.engine.model import AfterSelector, Dependency
from stoker.errors import Error, Invalid, UsageError
from stoker.features import call
from stoker.record import Record
from stoker.text.command_line import count, whole_number
from stoker.text.counter_names import is_counter_name
from stoker.text.durations import parse_duration
from stoker.text.selectors import parse_selector
from stoker.text.sizes import format_size, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ON_OOM = ("bigger", "elsewhere", "alone", "fail")
_CONDITIONS = ("ok", "any", "notok")
_KINDS_OF_SELECTORS = ("name", "tag", "sweep", "array", "job")
_MIN_GPU_MEMORY = 1 << 20
_LIST_OF_GPUS, _HOW_TO_LIST = "be a list of GPUs", "write [0, 2] or UUIDs, each once"
_LIST_OF_TAGS, _HOW_TO_TAG = "be a string or a list of strings", 'write "baseline" or ["a", "b"]'
_LIST_OF_MODULES = "be True or a list of modules"
_HOW_TO_WARM = 'write True, or the modules to import: ["torch", "numpy"]'
_HOW_TO_PATH = 'write "job.env" or a list of paths'


# Names an option in errors and, with a value, in hints: as_flag or as_keyword of JOB_OPTIONS.
OptionNames = Callable[..., str]


class Kind(Record):
    """The type of an option value. Both functions return the checked value or raise UsageError."""

    parse: Callable[[str], Any]  # text of a command line
    check: Callable[[Any], Any]  # a Python or JSON value
    completes: str = ""  # words for shell completion: `a|b`, or a kind of cli/completion


def _must(be: str, value: object, hint: str | None = None) -> Invalid:
    return Invalid(f"must {be}, not {value!r}", hint)


# -- numbers and switches ------------------------------------------------------------------------


def _check_whole(value: Any) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise _must("be an integer", value)
    if abs(number) >= 1 << 62:
        raise Invalid(f"is too large: {value!r}")
    return number


def _check_count(value: Any) -> int:
    number = _check_whole(value)
    if number < 0:
        raise Invalid(f"must not be negative, but is {value!r}")
    return number


def parse_gpu_count(text: str, chooser: str = "--gpu-ids") -> int:
    """Parse a number of GPUs. A list such as `0,1` is an error with `chooser` in its hint."""
    try:
        return count(text)
    except Invalid:
        raise
    except UsageError as error:
        if "," not in text:
            raise
        hint = f"this option is the number of GPUs; to choose GPUs: {chooser} {text}"
        raise UsageError(error.message, hint) from None


def _check_gpu_count(value: Any) -> int:
    if isinstance(value, (list, tuple)) or (isinstance(value, str) and "," in value):
        hint = f"it is the number of GPUs; to choose GPUs: gpu_ids={value!r}"
        raise _must("be an integer", value, hint)
    return _check_count(value)


def _parse_node_count(text: str) -> int:
    return _check_node_count(count(text))


def _check_node_count(value: Any) -> int:
    number = _check_count(value)
    if not number:
        raise Invalid("must be 1 or more")
    return number


def _check_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _must("be True or False", value)
    return value


# -- text ----------------------------------------------------------------------------------------


def check_text(value: Any, what: str = "") -> str:
    """Check text that is stored and passed to a program. `what` names it in errors."""
    if not isinstance(value, str):
        raise _must("be a string", value)
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
        raise _must("be a path", value) from None


def filled(text: str) -> str:
    """Check text that must not be empty or blank, such as a name."""
    if not text.strip():
        raise Invalid("must not be empty")
    return text


def job_name(text: str) -> str:
    """Check the name of a job: as a selector, it must mean this name and nothing else."""
    filled(text)
    try:
        is_free = parse_selector(text).name == text
    except UsageError:
        is_free = False
    if not is_free:
        raise Invalid(f"must not be `{text}`, which selects other jobs")
    return text


def _parse_path(text: str) -> str:
    if not text:
        raise Invalid("must not be empty")
    return text


def _parse_on_oom(text: str) -> str:
    if text not in ON_OOM:
        raise UsageError(
            f"`{text}` is not a valid action", "write bigger, elsewhere, alone or fail"
        )
    return text


def _parse_share(text: str) -> str:
    from stoker.engine.policy.share_mode import parse_share

    try:
        return parse_share(text)
    except ValueError:
        raise UsageError(
            f"`{text}` is not a way to share a GPU",
            "write mps, mps:50 (at most half of the GPU's threads) or time",
        ) from None


def _parse_signal(text: str) -> str:
    from stoker.text.limit_signal import parse_warning

    parse_warning(text)
    return text


# -- sizes and times -----------------------------------------------------------------------------


def _parse_memory(text: str) -> int | str:
    if text == "auto":
        return text
    return _parse_positive_size(text)


def _parse_positive_size(text: str) -> int:
    size = parse_size(text)
    if not size:
        raise Invalid("must not be 0", "write a size such as 20G")
    return _check_unit(size, f"did you mean {text.strip()}G?" if text.strip().isdigit() else None)


def _check_unit(size: int, hint: str | None) -> int:
    """Refuse a size that no GPU job can mean, such as 20 bytes: most likely it lacks its unit."""
    if size < _MIN_GPU_MEMORY:
        raise UsageError(f"{format_size(size)} is too small", hint or "write a size such as 20G")
    return size


def _check_size(value: Any) -> int:
    if isinstance(value, str):
        return _parse_positive_size(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _must("be a size", value, 'write "20G" or a number of bytes')
    size = _check_count(value)
    if not size:
        raise Invalid("must not be 0", 'write "20G" or a number of bytes')
    return _check_unit(size, f'did you mean "{size}G"?' if size < 1024 else None)


def _check_memory(value: Any) -> int | str:
    return "auto" if value == "auto" else _check_size(value)


def _check_duration(value: Any, bare: str) -> float:
    if isinstance(value, str):
        return parse_duration(value, bare)
    hint = 'write "2h", a number of seconds or a timedelta'
    try:
        seconds = float(value.total_seconds() if hasattr(value, "total_seconds") else value)
    except (TypeError, ValueError, OverflowError):
        raise _must("be a duration", value, hint) from None
    if isinstance(value, bool) or seconds != seconds:
        raise _must("be a duration", value, hint)
    if seconds < 0:
        raise Invalid(f"must not be negative, but is {value!r}", hint)
    if seconds > 1e10:
        raise Invalid(f"is too long: {value!r}", hint)
    return seconds


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
        if isinstance(value, bool):
            raise TypeError
        if hasattr(value, "total_seconds"):
            return now + float(value.total_seconds())
        at = float(value.timestamp() if isinstance(value, datetime) else value)
        datetime.fromtimestamp(at)
        return at
    except (ValueError, TypeError, OverflowError, OSError):
        hint = 'write "+2h", "14:30", "2026-12-24T18:00", or give a datetime'
        raise _must("be a time", value, hint) from None


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
    names = tuple(_gpu_name(item, value) for item in _items(value, _LIST_OF_GPUS, _HOW_TO_LIST))
    if not names or not all(names) or len(set(names)) != len(names):
        raise _must(_LIST_OF_GPUS, value, _HOW_TO_LIST)
    return names


def _gpu_name(item: Any, value: Any) -> str:
    if isinstance(item, str):
        return item.strip()
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise _must(_LIST_OF_GPUS, value, _HOW_TO_LIST)
    return str(_check_count(item))


def _items(value: Any, be: str, hint: str) -> tuple[Any, ...]:
    """The items of a list, tuple or other iterable. Raises Invalid for other values."""
    if not isinstance(value, bytes):
        try:
            return tuple(value)
        except TypeError:
            pass
    raise _must(be, value, hint)


def parse_tags(text: str) -> tuple[str, ...]:
    """Split `a,b` into two tags, as in a selector."""
    tags = tuple(word.strip() for word in text.split(","))
    if not all(tags):
        raise UsageError(
            "a tag must not be empty" if not text.strip() else f"`{text}` has an empty tag"
        )
    return tags


def check_tags(value: Any) -> tuple[str, ...]:
    """Tags from a text or a list of texts. Raises UsageError."""
    texts = (value,) if isinstance(value, str) else _items(value, _LIST_OF_TAGS, _HOW_TO_TAG)
    for text in texts:
        if not isinstance(text, str):
            raise _must(_LIST_OF_TAGS, value, _HOW_TO_TAG)
    return tuple(tag for text in texts for tag in parse_tags(check_text(text, "a tag")))


def parse_pair(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `NAME=VALUE`, or `NAME` to copy the variable of this process."""
    key, equals, value = text.partition("=")
    if not key:
        raise UsageError(f"`{text}` is not an environment variable", "write NAME=VALUE")
    if not equals:
        if key not in os.environ:
            raise UsageError(f"`{key}` is not set in your environment", f"write {key}=VALUE")
        value = os.environ[key]
    return ((key, value),)


def _parse_engine_option(text: str) -> tuple[str, ...]:
    """Parse `partition=gpu`, or `exclusive` for an option without a value."""
    key, _, value = text.partition("=")
    if not key.strip("-") or any(char.isspace() for char in key):
        raise UsageError(f"`{text}` is not an option", "write K=V, e.g. partition=gpu")
    return (f"{key.lstrip('-')}={value}",)


def _check_engine_options(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        value = [f"{key}={text}" for key, text in value.items()]
    hint = 'write ["partition=gpu"] or {"partition": "gpu"}'
    texts = (value,) if isinstance(value, str) else _items(value, "be a list of options", hint)
    return tuple(one for text in texts for one in _parse_engine_option(check_text(text)))


def _parse_need(text: str) -> tuple[str, ...]:
    """Parse `licence=2`, or `licence` for one of it."""
    name, equals, amount = text.partition("=")
    is_number = amount.isascii() and amount.isdigit() and 0 < int(amount) < 1 << 31
    if not is_counter_name(name) or (equals and not is_number):
        raise UsageError(f"`{text}` is not the amount of a counter", "write NAME=N, e.g. licence=1")
    return (f"{name}={int(amount or 1)}",)


def _check_needs(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        value = [f"{name}={amount}" for name, amount in value.items()]
    hint = 'write ["licence=1"] or {"licence": 1}'
    texts = (value,) if isinstance(value, str) else _items(value, "be a list of counters", hint)
    return tuple(one for text in texts for one in _parse_need(check_text(text)))


def joined_needs(needs: tuple[str, ...]) -> tuple[str, ...]:
    """The needs sorted by name; of several for one counter, the last."""
    return tuple(f"{name}={n}" for name, n in sorted(dict(n.split("=") for n in needs).items()))


def _check_env(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = []
    if not isinstance(value, Mapping):
        raise _must("be a dict", value, 'write {"NAME": "value"}')
    for name, content in value.items():
        if not isinstance(name, str):
            raise UsageError(f"the name of a variable must be a string, not {name!r}")
        check_text(name, "the name of a variable")
        if not name or "=" in name:
            raise UsageError(f"`{name}` is not a valid name of an environment variable")
        if isinstance(content, (bool, int, float)):
            content = str(content)
        what = f"the variable `{name}`"
        if not isinstance(content, (str, bytes, os.PathLike)):
            raise UsageError(f"{what} must be a string, a path or a number, not {content!r}")
        pairs.append((name, check_path(content, what)))
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
    is_one = isinstance(value, (str, bytes, os.PathLike))
    files = (value,) if is_one else _items(value, "be a path or a list of paths", _HOW_TO_PATH)
    paths = [_parse_path(check_path(file)) for file in files]
    return tuple(pair for path in paths for pair in _parse_env_file(path))


def parse_dependencies(text: str) -> tuple[Dependency | AfterSelector, ...]:
    """Parse `7`, `7:any`, `7,8:notok`, `@`, `train:any`, `3-9`."""
    hint = "write 7, 7:ok, 7:any or 7:notok; a range, a name, a tag or @ (the last job) likewise"
    return tuple(_dependency(part, hint) for part in text.split(","))


def _dependency(text: str, hint: str) -> Dependency | AfterSelector:
    head, colon, condition = text.rpartition(":")
    if not colon or (condition not in _CONDITIONS and head in _KINDS_OF_SELECTORS):
        head, condition = text, "ok"
    if head.isascii() and head.isdigit() and len(head) < 19 and condition in _CONDITIONS:
        return Dependency(int(head), condition)
    is_word = head.partition(":")[0] in _KINDS_OF_SELECTORS or ":" not in head
    is_number = head.isdigit() or not any(char.isprintable() for char in head)
    if condition not in _CONDITIONS or not head.strip() or is_number or not is_word:
        raise UsageError(f"`{text}` is not a dependency", hint)
    from stoker.text.selectors import parse_selector

    if parse_selector(head).states is not None:
        raise UsageError(
            f"`{head}` is a state, not a job", f"for jobs with that name: name:{head}; {hint}"
        )
    return AfterSelector(head, condition)


_DEPENDENCIES = (Dependency, AfterSelector)


def _check_after(value: Any) -> tuple[Any, ...]:
    """Check dependencies. Jobs of the Python API stay as they are: their queue is checked when the
    job is submitted."""
    is_one = isinstance(value, (int, str, *_DEPENDENCIES)) or hasattr(value, "state_dir")
    found: list[Any] = []
    hint = 'give a job, its id, "7:any", a name, a tag, or "@" for the last job'
    for item in (value,) if is_one else _items(value, "be a job or a list of jobs", hint):
        if isinstance(item, _DEPENDENCIES) or hasattr(item, "state_dir"):
            found.append(item)
        else:
            found.append(_dependency(str(item), hint))
    return tuple(found)


def _parse_array(text: str) -> str:
    from stoker.text.array_indexes import parse_array

    parse_array(text)
    return text


def _check_array(value: Any) -> str:
    if isinstance(value, range):
        value = list(value)
    if isinstance(value, (list, tuple)) and value:
        value = ",".join(str(_check_count(item)) for item in value)
    if not isinstance(value, str):
        raise _must("be a list of indices", value, 'write "0-9", "0-99%8", or range(10)')
    return _parse_array(check_text(value))


def _parse_notify(text: str) -> tuple[Any, ...]:
    rules: tuple[Any, ...] = call("notify_rules", text)
    return rules


def _check_notify(value: Any) -> tuple[Any, ...]:
    if value is False:
        value = "none"
    hint = 'write "failure" or ["end:phone", "gpu-lost"]'
    texts = (value,) if isinstance(value, str) else _items(value, "be a list of events", hint)
    return tuple(rule for text in texts for rule in _parse_notify(check_text(text)))


def _parse_modules(text: str) -> str:
    """Modules for a warm start, by comma; "" for `auto`: those that earlier runs imported."""
    if text in ("", "auto", "True"):
        return ""
    return _module_list(text.split(","))


def _check_modules(value: Any) -> str | None:
    if isinstance(value, bool):
        return "" if value else None
    if isinstance(value, str):
        return _parse_modules(value)
    return _module_list(_items(value, _LIST_OF_MODULES, _HOW_TO_WARM))


def _module_list(value: Iterable[object]) -> str:
    names = [str(name).strip() for name in value]
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(f"`{name}` is not the name of a module", "write torch,numpy")
    if not names:
        raise _must(_LIST_OF_MODULES, value, _HOW_TO_WARM)
    return ",".join(dict.fromkeys(names))


def _check_texts(value: Any) -> tuple[str, ...]:
    hint = 'write "cuda/12" or ["gcc", "cuda/12"]'
    texts = (value,) if isinstance(value, str) else _items(value, "be a list of strings", hint)
    return tuple(filled(check_text(text)) for text in texts)


WHOLE = Kind(whole_number, _check_whole)
COUNT = Kind(count, _check_count)
GPU_COUNT = Kind(parse_gpu_count, _check_gpu_count)
NODE_COUNT = Kind(_parse_node_count, _check_node_count)
CORE_COUNT = Kind(_parse_node_count, _check_node_count)
NEEDS = Kind(_parse_need, _check_needs)
ENGINE_OPTIONS = Kind(_parse_engine_option, _check_engine_options)
SWITCH = Kind(lambda text: True, _check_switch)
NAME = Kind(filled, lambda value: filled(check_text(value)))
JOB_NAME = Kind(job_name, lambda value: job_name(check_text(value)))
TEXTS = Kind(lambda text: (filled(text),), _check_texts)
PATH = Kind(_parse_path, lambda value: _parse_path(check_path(value)))
SIZE = Kind(_parse_positive_size, _check_size)
MEMORY = Kind(_parse_memory, _check_memory, "auto|")
MINUTES = Kind(parse_duration, lambda value: _check_duration(value, "m"))
SECONDS = Kind(lambda text: parse_duration(text, "s"), lambda value: _check_duration(value, "s"))
BEGIN = Kind(_parse_begin, _check_begin)
SIGNAL = Kind(
    _parse_signal, lambda value: _parse_signal(check_text(value)), "USR1@60|USR2@60|INT@60|TERM@60"
)
WAY = Kind(_parse_on_oom, lambda value: _parse_on_oom(check_text(value)), "|".join(ON_OOM))
SHARE = Kind(_parse_share, lambda value: _parse_share(check_text(value)), "mps|time")
GPU_NAMES = Kind(_parse_names, _check_names)
TAGS = Kind(parse_tags, check_tags)
ENV = Kind(parse_pair, _check_env)
ENV_FILE = Kind(_parse_env_file, _check_env_file)
MODULES = Kind(_parse_modules, _check_modules)
ARRAY = Kind(_parse_array, _check_array)
NOTIFY = Kind(_parse_notify, _check_notify)
AFTER = Kind(parse_dependencies, _check_after)
