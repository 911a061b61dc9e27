"""What a job may ask for, as Python values: `gpus=2, gpu_mem="20G", time_limit="2h"`.

Names and meanings are those of `stoker submit`. Bare numbers are seconds and bytes; text is read as
the command line reads it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from stoker.core.formats.durations import parse_duration, parse_size
from stoker.core.record import Record
from stoker.errors import Unavailable, UsageError, about

if TYPE_CHECKING:
    from stoker.core.model import Context, Dependency, Device, JobSpec, Request
    from stoker.python.job import Job
    from stoker.settings import Settings

    Path: TypeAlias = str | os.PathLike[str]
    After: TypeAlias = Job[Any] | int | str | Dependency

_CONDITIONS = ("ok", "any", "notok")
_ON_OOM = ("bigger", "elsewhere", "alone", "fail")
_MOST_ENV_BYTES = 1_500_000


class Options(TypedDict, total=False):
    """The keywords of `submit` for commands, of `@job` and of `Executor`."""

    gpus: int | None  # default: 1 where there are any
    gpu_mem: str | int | None  # of each card, which it then shares: "20G", bytes, or "auto"
    gpu_ids: Iterable[int | str] | None  # only these: indices or UUIDs
    prefer: Iterable[int | str] | None  # these first
    gpu_model: str | None  # part of the model's name
    min_gpu_mem: str | int | None  # cards with at least so much
    exclusive: bool
    on_oom: str | None  # bigger, elsewhere, alone or fail
    name: str | None
    cwd: Path | None
    env: Mapping[str, str | int | float | os.PathLike[str]] | None
    priority: int
    after: After | Iterable[After] | None  # jobs, ids, or "7:any"
    time_limit: str | float | timedelta | None  # seconds, "90m", "2h"
    signal: str | None  # sent before the time limit: "USR1@60"
    grace: str | float | timedelta | None
    retries: int
    restartable: bool
    begin: str | float | datetime | timedelta | None  # seconds since the epoch, "+2h", ISO 8601
    tags: str | Iterable[str] | None
    stdout: Path | None
    stderr: Path | None
    hold: bool
    keep_children: bool
    dedupe: str | None


NAMES = tuple(Options.__annotations__)


class ParsedOptions(Record):
    """Options that were read; what depends on the host and the moment is still open."""

    fields: dict[str, Any]  # of JobSpec
    request: Request  # `gpus` -1: as many as a job gets that does not say
    cwd: str | None
    env: tuple[tuple[str, str], ...]
    after: tuple[After, ...]
    begin: str | float | datetime | timedelta | None
    stdout: str | None
    stderr: str | None


def check_names(options: Iterable[str], known: tuple[str, ...], what: str) -> None:
    """Refuse an option that is none, with the nearest that is."""
    for key in options:
        if key not in known:
            from difflib import get_close_matches

            near = get_close_matches(key, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"options: {', '.join(known)}"
            raise UsageError(f"`{key}` is no option of {what}", hint)


def read_options(options: Mapping[str, Any]) -> ParsedOptions:
    """Check and convert; UsageError says which value makes no sense."""
    from stoker.core.model import Request

    check_names(options, NAMES, "a job")
    given = {key: value for key, value in options.items() if value is not None}

    def read(key: str, convert: Callable[[str, Any], Any], default: Any = None) -> Any:
        with about(key):
            return convert(key, given[key]) if key in given else default

    memory = given.get("gpu_mem")
    is_auto = memory == "auto"
    request = Request(
        gpus=read("gpus", _count, -1),
        memory=None if is_auto else read("gpu_mem", _size),
        exclusive=read("exclusive", _switch, False),
        ids=read("gpu_ids", _cards, ()),
        prefer=read("prefer", _cards, ()),
        model=read("gpu_model", _text),
        min_memory=read("min_gpu_mem", _size),
        is_auto=is_auto,
    )
    _check_request(request, memory is not None)
    on_oom = read("on_oom", _text)
    if on_oom is not None and on_oom not in _ON_OOM:
        raise UsageError(
            f"`{on_oom}` is no answer to running out of GPU memory", f"write {', '.join(_ON_OOM)}",
            "on_oom",
        )  # fmt: skip
    fields = {
        "name": read("name", _text),
        "priority": read("priority", _whole, 0),
        "time_limit": read("time_limit", _seconds) or None,
        "warn": read("signal", _signal),
        "grace": read("grace", _grace),
        "retries": read("retries", _count, 0),
        "restartable": read("restartable", _switch, False),
        "tags": read("tags", _tags, ()),
        "held": read("hold", _switch, False),
        "dedupe": read("dedupe", _text),
        "keep_children": read("keep_children", _switch, False),
        "on_oom": on_oom,
    }
    if fields["warn"] is not None and fields["time_limit"] is None:
        raise UsageError("`signal` warns before the time limit, and there is none",
                         'write time_limit="2h" too', "time_limit")  # fmt: skip
    if "begin" in given:
        with about("begin"):
            _moment(given["begin"], time.time())
    after = given.get("after", ())
    if isinstance(after, (int, str)) or hasattr(after, "state_dir") or hasattr(after, "condition"):
        after = (after,)
    return ParsedOptions(
        fields, request, read("cwd", _path), read("env", _env, ()), tuple(after),
        given.get("begin"), read("stdout", _path), read("stderr", _path),
    )  # fmt: skip


def make_spec(wanted: ParsedOptions, settings: Settings, devices: tuple[Device, ...]) -> JobSpec:
    """A job without a command yet."""
    from stoker.client.queue import check_possible, current_context, output_path
    from stoker.core.model import JobSpec

    request = wanted.request
    if request.gpus < 0:
        if not request.ids and not devices and not settings.devices:
            _check_driver()
        request = request._replace(gpus=len(request.ids) or (1 if devices else 0))
        _check_request(request, request.memory is not None or request.is_auto)
    check_possible(request, devices)
    try:
        cwd = os.path.abspath(wanted.cwd) if wanted.cwd is not None else os.getcwd()
    except FileNotFoundError:
        raise UsageError("the folder you are in was removed", "use os.chdir") from None
    if not os.path.isdir(cwd):
        raise UsageError(f"the folder `{cwd}` does not exist", field="cwd")
    context = current_context(settings, cwd, wanted.env)
    with about("env"):
        _check_context(context)
    begin = None if wanted.begin is None else _moment(wanted.begin, time.time())
    with about("after"):
        after = tuple(_dependency(item, settings) for item in wanted.after)
    return JobSpec(
        argv=(),
        context=context,
        request=request,
        after=after,
        begin_at=begin,
        stdout=output_path(wanted.stdout, cwd),
        stderr=output_path(wanted.stderr, cwd),
        **wanted.fields,
    )


def check_words(words: tuple[str, ...]) -> None:
    """What could not be kept or executed as it is."""
    from stoker.core.formats.shell_words import MAX_ARGUMENT_BYTES

    with about("command"):
        if not words or not words[0]:
            raise UsageError("the command is empty")
        for number, word in enumerate(words, 1):
            _text(f"word {number} of the command", word)
            if len(words) > 1 and len(os.fsencode(word)) > MAX_ARGUMENT_BYTES:
                raise UsageError(
                    f"word {number} of the command has {len(os.fsencode(word))} bytes, and Linux "
                    f"allows {MAX_ARGUMENT_BYTES}",
                    "put it into a file",
                )


# -- single values -----------------------------------------------------------------------------


def _wrong(key: str, value: object, hint: str) -> UsageError:
    return UsageError(f"`{key}` has the value `{value!r}`, which makes no sense", hint)


def _whole(key: str, value: Any) -> int:
    try:
        number = value.__index__()
    except AttributeError:
        number = None
    if number is None or isinstance(value, bool) or abs(number) >= 1 << 62:
        raise _wrong(key, value, f"write {key}=2")
    return int(number)


def _count(key: str, value: Any) -> int:
    number = _whole(key, value)
    if number < 0:
        raise _wrong(key, value, "0 or more")
    return number


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(key, value, f"write {key}=True")
    return value


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(key, value, "give text")
    if "\0" in value:
        raise UsageError(f"{key} holds a NUL byte")
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UsageError(f"{key} holds characters that no file system knows: {value!r}") from None
    return value


def _path(key: str, value: Any) -> str:
    try:
        return _text(key, os.fsdecode(value))
    except TypeError:
        raise _wrong(key, value, "give a path") from None


def _size(key: str, value: Any) -> int:
    size = parse_size(value) if isinstance(value, str) else _count(key, value)
    if not size:
        raise _wrong(key, value, f'write {key}="20G" or a number of bytes')
    return size


def _duration(key: str, value: Any, bare: str) -> float:
    if isinstance(value, str):
        return parse_duration(value, bare)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not hasattr(value, "__float__") or not 0 <= float(value) <= 1e10:
        raise _wrong(key, value, f'write {key}="2h" or a number of seconds')
    return float(value)


def _seconds(key: str, value: Any) -> float:
    return _duration(key, value, "m")


def _signal(key: str, value: Any) -> str:
    from stoker.core.formats.limit_signal import parse_warning

    parse_warning(_text(key, value))
    return str(value)


def _grace(key: str, value: Any) -> float:
    return _duration(key, value, "s")


def _cards(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    try:
        names = tuple(str(word).strip() for word in value)
    except TypeError:
        names = ()
    if not names or not all(names) or len(set(names)) != len(names):
        raise _wrong(key, value, f"write {key}=[0, 2] or UUIDs, each once")
    return names


def _tags(key: str, value: Any) -> tuple[str, ...]:
    return tuple(_text("a tag", tag) for tag in ([value] if isinstance(value, str) else value))


def _env(key: str, value: Any) -> tuple[tuple[str, str], ...]:
    pairs = []
    for name, content in value.items():
        _text("the name of a variable", name)
        if not name or "=" in name:
            raise UsageError(f"`{name}` cannot be the name of an environment variable")
        if isinstance(content, (bool, int, float)):
            content = str(content)
        pairs.append((name, _path(f"the variable `{name}`", content)))
    return tuple(pairs)


def _moment(value: str | float | datetime | timedelta, now: float) -> float:
    try:
        if isinstance(value, str):
            relative = value.removeprefix("now")
            if relative.startswith("+"):
                return now + parse_duration(relative[1:], "s")
            return datetime.fromisoformat(value).timestamp()
        if isinstance(value, timedelta):
            return now + value.total_seconds()
        at = value.timestamp() if isinstance(value, datetime) else float(value)
        datetime.fromtimestamp(at)  # nobody could show a time that this refuses
        return at
    except (UsageError, ValueError, TypeError, OverflowError, OSError):
        hint = 'write "+2h", "2026-12-24T18:00", or give a datetime'
        raise _wrong("begin", value, hint) from None


def _dependency(item: Any, settings: Settings) -> Dependency:
    from stoker.core.model import Dependency

    if hasattr(item, "state_dir"):
        if item.state_dir != settings.state_dir:
            raise UsageError(f"job {item.id} is in another queue (`{item.state_dir}`)")
        return Dependency(item.id)
    if isinstance(item, Dependency):
        return item
    job, _, condition = str(item).partition(":")
    is_id = job.isascii() and job.isdigit() and len(job) < 19
    if not is_id or (condition or "ok") not in _CONDITIONS:
        raise UsageError(f"`{item}` is not a dependency", 'give a job, its id, or "7:any"')
    return Dependency(int(job), condition or "ok")


# -- the same refusals as on the command line ---------------------------------------------------


def _check_request(request: Request, has_memory: bool) -> None:
    if has_memory and request.exclusive:
        raise UsageError("`gpu_mem` shares a card, and `exclusive` does not", "give one", "gpu_mem")
    if not request.gpus and (has_memory or request.ids or request.exclusive):
        raise UsageError(
            "a job without a GPU cannot ask for anything of one",
            "leave out gpu_mem, gpu_ids and exclusive",
            "gpus",
        )


def _check_driver() -> None:
    """A GPU job must not become a CPU job because the driver happens to be silent."""
    from stoker.devices.discovery import has_driver

    if has_driver():
        from stoker.devices.nvml_client import sample_once

        sample = sample_once()
        if sample.cards is None:
            raise Unavailable(
                f"cannot tell which GPUs this host has: {sample.trouble}",
                "a job without a GPU: gpus=0; else see `stoker doctor`",
            )


def _check_context(context: Context) -> None:
    from stoker.core.formats.shell_words import MAX_ARGUMENT_BYTES

    for key, value in context.env:
        if len(os.fsencode(value)) + len(key) + 2 > MAX_ARGUMENT_BYTES:
            raise UsageError(f"the variable `{key}` is too large for any program (over 128 kB)")
    size = sum(len(key) + len(value) + 10 for key, value in context.env)
    if size > _MOST_ENV_BYTES:
        raise UsageError(f"the environment has {size} bytes, too many for any program to start")
