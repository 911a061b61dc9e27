"""From options to a job: `ParsedOptions` are checked options, `make_spec` makes a job of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from stoker.client.context import current_context
from stoker.client.submit import option_values as kinds
from stoker.client.submit.host_requests import (
    check_host_of_queue,
    check_host_possible,
    check_possible,
)
from stoker.client.submit.job_options import JOB_OPTIONS, as_keyword, check_values
from stoker.client.submit.option_values import OptionNames
from stoker.engine.job_settings import settings_of
from stoker.engine.model import (
    GROUP_PREFIX,
    LOCAL,
    MPS,
    AfterSelector,
    Context,
    Dependency,
    Device,
    JobSpec,
    Request,
)
from stoker.engine.snapshot_context import NEW_SNAPSHOT, SNAPSHOT_DIR, SNAPSHOT_IN_GIT
from stoker.errors import Impossible, Unavailable, UsageError, about, name_option
from stoker.features import call
from stoker.record import Record
from stoker.settings import Settings, load_settings
from stoker.text.commands.shell_words import MAX_ARGUMENT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_ENV_BYTES = 1_500_000


class ParsedOptions(Record):
    """Checked options. Values that depend on the host or the time are not resolved yet."""

    fields: dict[str, Any]  # of JobSpec
    request: Request  # `gpus` -1: the default
    cwd: str | None
    env: tuple[tuple[str, str], ...]
    after: tuple[Any, ...]
    begin: Any
    array: str | None
    stdout: str | None
    stderr: str | None
    notify: tuple[Any, ...] | None  # rules; their places are not resolved yet
    named: OptionNames
    environment: dict[str, Any]  # the options for make_activation


def read_options(options: Mapping[str, Any], settings: Settings | None = None) -> ParsedOptions:
    """Check options given as Python or JSON values. Raises UsageError that names the option.

    `settings`: those with the profiles; None: those of this user.
    """
    values = with_settings(check_values(options), settings or load_settings())
    return parse_options(values, as_keyword)


def with_settings(values: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    """Add the options of settings profiles to those of a job (client/settings_profiles.py)."""
    if not values.get("profile") and not settings.profile:
        return values
    from stoker.client.settings_profiles import with_profiles

    return with_profiles(values, settings)


def parse_options(values: Mapping[str, Any], named: OptionNames) -> ParsedOptions:
    """Combine values that were checked one by one. Raises UsageError if they contradict.

    `named`: `as_flag` or `as_keyword`.
    """
    get = values.get
    memory, host_memory = get("gpu_mem"), get("mem")
    request = Request(
        gpus=get("gpus", -1),
        memory=None if memory == "auto" else memory,
        exclusive=get("exclusive", False),
        ids=get("gpu_ids", ()),
        prefer=get("prefer", ()),
        model=get("gpu_model"),
        min_memory=get("min_gpu_mem"),
        is_auto=memory == "auto",
        backend=get("on") or "",
        nodes=get("nodes", 1),
        options=get("option", ()),
        cpus=get("cpus", 0),
        host_memory=None if host_memory == "auto" else host_memory,
        is_auto_host=host_memory == "auto",
        needs=kinds.joined_needs(get("need", ())),
        preemptible=get("preemptible", False),
        share=get("share", ""),
    )
    check_request(request, named)
    if not request.gpus and get("on_oom") is not None:
        raise _needs_gpus(["on_oom"], named)
    if get("signal") is not None and not get("time_limit") and not request.preemptible:
        raise UsageError(
            f"{named('signal')} needs {named('time_limit')}",
            f"add {named('time_limit', '2h')}",
            "time_limit",
        )
    own = {
        option.key: values[option.key]
        for option in JOB_OPTIONS
        if option.in_settings and values.get(option.key) is not None
    }
    if request.preemptible:  # what may be stopped at any time may also run again after a crash
        own["restartable"] = True
    fields = {
        "name": get("name"),
        "priority": get("priority", 0),
        "time_limit": get("time_limit") or None,
        "settings": settings_of(own),
        "tags": get("tags", ()),
        "held": get("hold", False),
        "dedupe": get("dedupe"),
        "snapshot": _snapshot_wish(get("snapshot"), get("no_snapshot"), named),
        "fair_share_group": f"{GROUP_PREFIX}{group}" if (group := get("group")) else "",
    }
    return ParsedOptions(
        fields=fields,
        request=request,
        cwd=get("cwd"),
        env=(*get("env_file", ()), *get("env", ())),
        after=get("after", ()),
        begin=get("begin"),
        array=get("array"),
        stdout=get("stdout"),
        stderr=get("stderr"),
        notify=get("notify"),
        named=named,
        environment=call("environment", values, named) or {},
    )


def make_spec(
    options: ParsedOptions,
    settings: Settings,
    devices: tuple[Device, ...],
    *,
    context: Context | None = None,
    in_foreground: bool = False,
) -> JobSpec:
    """A job without a command yet. Raises UsageError, Impossible or Unavailable.

    `context`: the result of `make_context` for these options, to avoid making it again.
    """
    backend = options.request.backend or ("" if in_foreground else settings.backend or "")
    if backend not in ("", LOCAL):
        request = call("backend_request", options, settings, backend)
    else:
        request = _complete(options, settings, devices, in_foreground)
        is_masked = request.ids != options.request.ids
        check_possible(request, devices, options.named, is_masked=is_masked)
        _check_host(request, settings, options.named, in_foreground)
    if context is None:
        context = make_context(options, settings)
    with about("after"):
        after = tuple(_dependency(item, settings) for item in options.after)
    is_elsewhere = bool(request.backend)
    with about("stdout"):
        stdout = _output_path(options.stdout, context.cwd, is_elsewhere=is_elsewhere)
    with about("stderr"):
        stderr = _output_path(options.stderr, context.cwd, is_elsewhere=is_elsewhere)
    fields = options.fields
    if not in_foreground:
        fields = {**fields, "snapshot": _snapshot(fields["snapshot"], settings, context)}
    begin = None if options.begin is None else kinds.time_of(options.begin, time.time())
    variables: tuple[tuple[str, str], ...] = ()
    if options.array is not None:
        from stoker.text.array_indexes import parse_array

        variables = parse_array(options.array).variables(is_slurm=False)
    names = [name for name, _ in options.env]
    own = fields["settings"]._replace(
        notify=_notify(options, settings, in_foreground),
        activation=call(
            "activation", options.environment, names, context, settings, request, options.named
        )
        or (),
    )
    return JobSpec(
        argv=(),
        context=context,
        request=request,
        after=after,
        begin_at=begin,
        stdout=stdout,
        stderr=stderr,
        array=options.array,
        variables=variables,
        **{**fields, "settings": own},
    )


def _notify(options: ParsedOptions, settings: Settings, in_foreground: bool) -> str | None:
    """The job's notifications with the place of each. A foreground run has no default ones."""
    if options.notify is None and (settings.notify is None or in_foreground):
        return None
    try:
        text: str | None = call("notify", options.notify, settings.notify, in_foreground)
        return text
    except UsageError as error:
        raise name_option(options.named("notify"), error, "notify") from None


def _snapshot_wish(
    snapshot: bool | None, no_snapshot: bool | None, named: OptionNames
) -> str | None:
    """What the options say about a snapshot: a wish, "" for none, None if they say nothing."""
    if snapshot and no_snapshot:
        raise UsageError(
            f"{named('snapshot')} and {named('no_snapshot')} exclude each other",
            "use one of them",
            "snapshot",
        )
    if snapshot is None and not no_snapshot:
        return None
    return NEW_SNAPSHOT if snapshot else ""


def _snapshot(wish: str | None, settings: Settings, context: Context) -> str | None:
    """The wish for a snapshot with the settings; the id of the one from which it is submitted."""
    inside = dict(context.env).get(SNAPSHOT_DIR)
    if inside is not None:
        return os.path.basename(inside)
    if wish is None and settings.snapshot == "always":
        return SNAPSHOT_IN_GIT
    return wish or None


def make_context(options: ParsedOptions, settings: Settings) -> Context:
    """The folder, environment, umask and shell of a job with these options."""
    context = current_context(settings, _folder(options.cwd), options.env)
    with about("env"):
        _check_context(context)
    return context


def text_words(words: Iterable[object]) -> tuple[str, ...]:
    """The words of a command given as Python values. Raises UsageError for other types."""
    found = []
    for number, word in enumerate(words, 1):
        if not isinstance(word, (str, bytes, os.PathLike)):
            raise UsageError(
                f"word {number} of the command must be a string or a path, not {word!r}",
                f'write "{word}"' if isinstance(word, (int, float)) else None,
                "command",
            )
        found.append(os.fsdecode(word))
    return tuple(found)


def check_words(words: tuple[str, ...]) -> None:
    """Raise UsageError for a command that cannot be stored or executed."""
    with about("command"):
        if not words or not words[0].strip():
            raise UsageError("the command is empty")
        for number, word in enumerate(words, 1):
            kinds.check_text(word, f"word {number} of the command")
            if len(words) > 1 and len(os.fsencode(word)) > MAX_ARGUMENT_BYTES:
                raise UsageError(
                    f"word {number} of the command has {len(os.fsencode(word))} bytes, and Linux "
                    f"allows {MAX_ARGUMENT_BYTES}",
                    "put it into a file, or give the whole command as one quoted argument",
                )


def _complete(
    options: ParsedOptions, settings: Settings, devices: tuple[Device, ...], in_foreground: bool
) -> Request:
    """Add the default number of GPUs, and the restriction by CUDA_VISIBLE_DEVICES."""
    request = options.request._replace(backend="")
    for key, is_given in (("nodes", request.nodes > 1), ("option", request.options)):
        if is_given:
            raise UsageError(
                f"{options.named(key)} needs a backend with several nodes, and this is one host",
                f"add {options.named('on', 'NAME')}; `stoker backend ls` shows the backends",
                key,
            )
    if request.gpus < 0:
        if not request.ids and not devices and not settings.devices:
            _check_driver(options.named)
        request = request._replace(gpus=len(request.ids) or (1 if devices else 0))
        if not request.gpus and (given := _gpu_options(request)):
            names, it = _listed(given, options.named)
            raise Impossible(
                f"{names} {'need' if it == 'them' else 'needs'} a GPU, but this host has no GPU",
                f"remove {it} for a job without a GPU",
                given[0],
            )
    if request.share.startswith(MPS):
        _check_mps(request, options.named)  # again: --gpu-ids may have set the number of GPUs
    if request.gpus and not request.ids and not in_foreground:
        request = request._replace(ids=_masked(devices))
    return request


def _check_host(
    request: Request, settings: Settings, named: OptionNames, in_foreground: bool
) -> None:
    """Raise Impossible if the host has less than the request declares."""
    if not declares_host(request):
        return
    from stoker.engine.supervisor.host_size import host_resources

    if in_foreground:
        check_host_possible(request, host_resources(settings), named)
    else:
        check_host_of_queue(request, settings, named)


def declares_host(request: Request) -> bool:
    """Whether a request declares cores, memory or counters of the host."""
    return bool(
        request.cpus or request.host_memory is not None or request.is_auto_host or request.needs
    )


def check_request(request: Request, named: OptionNames) -> None:
    if (request.memory is not None or request.is_auto) and request.exclusive:
        raise UsageError(
            f"{named('gpu_mem')} and {named('exclusive')} exclude each other",
            "use one of them",
            "gpu_mem",
        )
    if not request.gpus and (given := _gpu_options(request)):
        raise _needs_gpus(given, named)
    if request.share.startswith(MPS):
        _check_mps(request, named)


def _check_mps(request: Request, named: OptionNames) -> None:
    with_mps = named("share", MPS)
    if request.exclusive:
        raise UsageError(
            f"`{with_mps}` and {named('exclusive')} exclude each other", "use one of them", "share"
        )
    if request.gpus > 1 or request.nodes > 1:
        raise UsageError(
            f"`{with_mps}` is for jobs with one GPU, because a job connects to one MPS daemon and"
            " each GPU has its own",
            f"remove `{with_mps}`, or use {named('gpus', 1)}",
            "share",
        )


def _gpu_options(request: Request) -> list[str]:
    """The options in a request that have no meaning without a GPU."""
    given = {
        "gpu_mem": request.memory is not None or request.is_auto,
        "gpu_ids": request.ids,
        "prefer": request.prefer,
        "gpu_model": request.model is not None,
        "min_gpu_mem": request.min_memory is not None,
        "exclusive": request.exclusive,
        "share": request.share,
    }
    return [key for key, is_given in given.items() if is_given]


def _needs_gpus(keys: list[str], named: OptionNames) -> UsageError:
    names, it = _listed(keys, named)
    need = "need" if it == "them" else "needs"
    return UsageError(
        f"{names} {need} {named('gpus')} 1 or more",
        f"remove {it}, or remove {named('gpus', 0)}",
        "gpus",
    )


def _listed(keys: list[str], named: OptionNames) -> tuple[str, str]:
    """The names of options as a list in words, and the pronoun for them."""
    names = [named(key) for key in keys]
    words = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return words, "them" if len(names) > 1 else "it"


def _masked(devices: tuple[Device, ...]) -> tuple[str, ...]:
    """The known GPUs that CUDA_VISIBLE_DEVICES names; () if it does not restrict them.

    Inside a job, the variable has the GPUs of that job, and does not restrict jobs it submits.
    """
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not mask or "STOKER_JOB_ID" in os.environ:
        return ()
    from stoker.engine.devices.device_names import visible_names
    from stoker.engine.policy.eligible import is_named

    names = visible_names(mask).split(",")
    known = tuple(name for name in names if any(is_named(device, (name,)) for device in devices))
    return known if len(known) < len(devices) else ()


def _check_driver(named: OptionNames) -> None:
    """A GPU job must not become a CPU job because the driver does not answer."""
    from stoker.engine.devices.discovery import has_driver

    if has_driver():
        from stoker.engine.devices.driver_client import sample_once

        sample = sample_once()
        if sample.gpus is None:
            raise Unavailable(
                f"cannot find the GPUs of this host: {sample.error}",
                f"for a job without a GPU: {named('gpus', 0)}; otherwise see `stoker doctor`",
            )


def _folder(given: str | None) -> str:
    try:
        cwd = os.path.abspath(given) if given else os.getcwd()
    except FileNotFoundError:
        raise UsageError(
            "the current directory was removed", "change to another directory"
        ) from None
    if not os.path.isdir(cwd):
        raise UsageError(f"the folder `{cwd}` does not exist", field="cwd")
    return cwd


def _dependency(item: Any, settings: Settings) -> Dependency | AfterSelector:
    if isinstance(item, (Dependency, AfterSelector)):
        return item
    if item.state_dir != settings.state_dir:
        raise UsageError(f"job {item.id} is in another queue (`{item.state_dir}`)")
    return Dependency(item.id)


def _check_context(context: Context) -> None:
    for key, value in context.env:
        if len(os.fsencode(value)) + len(key) + 2 > MAX_ARGUMENT_BYTES:
            raise UsageError(
                f"the environment variable `{key}` has more than 128 KiB, the limit of Linux"
            )
    size = sum(len(key) + len(value) + 10 for key, value in context.env)
    if size > _MAX_ENV_BYTES:
        raise UsageError(f"the environment has {size} bytes, more than Linux allows")


def _output_path(path: str | None, cwd: str, *, is_elsewhere: bool = False) -> str | None:
    """The absolute path of an output file. Raises UsageError if it cannot be written.

    `is_elsewhere`: it is written on the node of a backend.
    """
    if path is None:
        return None
    from stoker.engine.supervisor.regular_files import output_problem

    path = os.path.join(cwd, path)
    kind = output_problem(path)
    if kind is not None:
        raise UsageError(
            f"cannot write the output of a job to `{path}`: it is {kind}",
            "give the path of a regular file, or /dev/null",
        )
    if not is_elsewhere:
        _check_output_folder(path)
    return path


def _check_output_folder(path: str) -> None:
    """Raise UsageError if the folder of an output file does not exist and cannot be created."""
    folder = os.path.dirname(path.partition("%")[0])  # patterns are expanded at the start
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    problem = None
    if not os.path.isdir(folder):
        problem = f"`{folder}` is not a folder"
    elif not os.path.exists(path) and not os.access(folder, os.W_OK | os.X_OK):
        problem = f"you may not write to `{folder}`"
    if problem is not None:
        raise UsageError(
            f"cannot write the output of a job to `{path}`: {problem}",
            "give another path; folders that do not exist are created",
        )
