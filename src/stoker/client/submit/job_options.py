"""The options of a job, declared once for the command line, job files, Python and web forms.

The command line, `#stoker` lines, the Python API, web forms and their documentation are made from
JOB_OPTIONS. An option that the scheduling policy does not read, such as --grace, touches six files:

    this one                               the option, with `in_settings`
    engine/job_settings.py                 its type and default
    python/options.py                      its type for editors
    where it takes effect                  as `job.settings.NAME` in the daemon, or
                                           `order.settings.NAME` in the runner
    frontend/src/screens/option-fields.ts  an input, if the web UI offers it
    frontend/src/words.ts                  the label of the input

The rest follows: dry runs, `show`, JSON and its schema, sweep files, web forms, profiles, stored
jobs, reruns, clones, and jobs on backends (tests/features/backends/test_new_option.py). A new kind
of value also needs its type in forms (web/option_forms.py).

An option that the policy or a query reads is a field of Request or JobSpec (engine/model.py)
instead, set in `parse_options` below, with a column (engine/store/schema.sql) that
engine/store/submit.py writes, engine/store/reruns.py copies and engine/store/ready_jobs.py reads;
client/views/job.py and client/views/job_types.py show it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

from stoker.client.submit import option_values as kinds
from stoker.client.submit.option_values import Kind
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
from stoker.features.environments.environment_options import environment_values, make_activation
from stoker.record import Record
from stoker.settings import Settings, load_settings
from stoker.text.command_line import Option
from stoker.text.commands.shell_words import MAX_ARGUMENT_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Names an option in errors and, with a value, in hints: `as_flag` or `as_keyword`.
OptionNames = Callable[..., str]

_MAX_ENV_BYTES = 1_500_000


class JobOption(Record):
    """One option of a job."""

    key: str  # in Python, JSON and sweep files
    flags: str
    value: str | None  # name of the value in help texts; None for a switch
    kind: Kind
    help: str
    repeats: bool = False  # the flag may be repeated; its values are joined
    optional: bool = False  # the flag may have a value: --warm or --warm=torch
    is_single: bool = False  # only for one job, not for all jobs of a sweep
    in_queue: bool = False  # only for jobs in the queue, not for `stoker run`
    in_settings: bool = False  # its value is one of JobSettings (engine/job_settings.py)


JOB_OPTIONS = (
    JobOption("gpus", "-G --gpus", "N", kinds.GPU_COUNT,
              "number of GPUs (default: 1 if this host has GPUs, else 0)"),
    JobOption("gpu_mem", "-M --gpu-mem", "SIZE", kinds.MEMORY,
              "GPU memory to reserve on each GPU, e.g. 20G; auto: as much as was measured"),
    JobOption("gpu_ids", "--gpu-ids", "LIST", kinds.GPU_NAMES,
              "use only these GPUs, by index or UUID: 0,2"),
    JobOption("prefer", "--prefer", "LIST", kinds.GPU_NAMES,
              "use these GPUs if they are free: 0,2"),
    JobOption("gpu_model", "--gpu-model", "NAME", kinds.NAME,
              "use only GPUs whose model name contains this, e.g. H200"),
    JobOption("min_gpu_mem", "--min-gpu-mem", "SIZE", kinds.SIZE,
              "use only GPUs with at least this much memory, e.g. 40G"),
    JobOption("exclusive", "--exclusive", None, kinds.SWITCH,
              "do not share GPUs, even if they have several slots"),
    JobOption("share", "--share", "HOW", kinds.SHARE,
              "how to share the GPU: mps (NVIDIA's MPS), mps:50 (with half of its threads at most),"
              " or time (time slices)"),
    JobOption("cpus", "--cpus", "N", kinds.CORE_COUNT,
              "number of CPU cores to reserve (default: 1, or a part of one if the host has fewer"
              " cores than GPU slots)"),
    JobOption("mem", "--mem", "SIZE", kinds.MEMORY,
              "memory of the host to reserve, e.g. 16G; auto uses the peak of earlier runs"),
    JobOption("need", "--need", "NAME=N", kinds.NEEDS,
              "amount of a counter that the settings define under [resources], e.g. licence=1",
              repeats=True),
    JobOption("on", "--on", "NAME", kinds.NAME,
              "run on this backend, e.g. a Slurm cluster (see `stoker backend`); local: this host"),
    JobOption("nodes", "--nodes", "N", kinds.NODE_COUNT,
              "run on N nodes of the backend, with --gpus GPUs on each"),
    JobOption("option", "--option", "K=V", kinds.ENGINE_OPTIONS,
              "option for the engine of the backend, e.g. partition=gpu", repeats=True),
    JobOption("on_oom", "--on-oom", "HOW", kinds.WAY,
              "after a GPU out-of-memory error: retry with more memory (bigger), on another GPU"
              " (elsewhere) or on whole GPUs (alone), or fail", in_settings=True),
    JobOption("name", "-n --name", "NAME", kinds.JOB_NAME, "name of the job, to select it by",
              is_single=True),
    JobOption("cwd", "-C --cwd", "DIR", kinds.PATH, "working directory (default: the current one)"),
    JobOption("env", "-E --env", "K=V", kinds.ENV,
              "set an environment variable; NAME alone copies it", repeats=True),
    JobOption("env_file", "--env-file", "FILE", kinds.ENV_FILE,
              "set environment variables from a file with one K=V per line", repeats=True),
    JobOption("priority", "-p --priority", "N", kinds.WHOLE,
              "a higher number starts first (default: 0)"),
    JobOption("after", "-d --after", "JOB[:COND]", kinds.AFTER,
              "start after job 7 succeeded (7 or 7:ok), finished (7:any) or failed (7:notok); also"
              " 3-9, a name, a tag, 7_3 (index 3 of array 7) or @ (the last job)",
              repeats=True, is_single=True,
              in_queue=True),
    JobOption("array", "--array", "INDICES", kinds.ARRAY,
              "queue one job for each index, which is in $STOKER_ARRAY_INDEX: 0-99, 1,3,5-7,"
              " 0-15:4; 0-99%8 runs at most 8 at once", is_single=True, in_queue=True),
    JobOption("time_limit", "-t --time-limit", "TIME", kinds.MINUTES,
              "stop the job after this long: 90s, 30m, 2h, HH:MM:SS (0: no limit; without unit:"
              " minutes)"),
    JobOption("grace", "--grace", "TIME", kinds.SECONDS,
              "time between SIGTERM and SIGKILL (without unit: seconds)", in_settings=True),
    JobOption("signal", "--signal", "SIG[@TIME]", kinds.SIGNAL,
              "send a signal before the time limit, or when a preemptible job has to give way:"
              " USR1@60 sends it 60 s before (B:USR1@60: only to the shell)",
              in_settings=True),
    JobOption("retries", "-r --retries", "N", kinds.COUNT,
              "retry up to N times if the job fails, with increasing delays", in_settings=True),
    JobOption("restartable", "--restartable", None, kinds.SWITCH,
              "run the job again if it is lost (crash, reboot) or exits with 75",
              in_settings=True),
    JobOption("preemptible", "--preemptible", None, kinds.SWITCH,
              "use idle GPUs and give way: when another job needs the GPU, the job is asked to save"
              " its work, stopped and queued again", in_queue=True),
    JobOption("begin", "--begin", "TIME", kinds.BEGIN,
              "do not start before: 14:30, +2h, 2026-12-24T18:00", is_single=True, in_queue=True),
    JobOption("tags", "-T --tag", "TAG", kinds.TAGS, "tag to select jobs by; a,b sets two tags",
              repeats=True),
    JobOption("group", "--group", "NAME", kinds.NAME,
              "fair-share group; the group that uses the fewest GPUs goes first",
              is_single=True, in_queue=True),
    JobOption("stdout", "-o --stdout", "PATH", kinds.PATH,
              "write output to this file; %j is the job id, %a the index in an array, %x the name"
              " (default: see `stoker log`)",
              is_single=True),
    JobOption("stderr", "-e --stderr", "PATH", kinds.PATH,
              "write stderr to this file (default: same as --stdout)", is_single=True),
    JobOption("hold", "--hold", None, kinds.SWITCH,
              "do not start the job before `stoker release`", in_queue=True),
    JobOption("keep_children", "--keep-children", None, kinds.SWITCH,
              "when the command exits, do not kill its background processes", in_settings=True),
    JobOption("warm", "--warm", "MODULES", kinds.MODULES,
              "fork the Python program from a process that has imported these modules, e.g."
              " torch,numpy (default: those that earlier runs imported)", optional=True,
              in_settings=True),
    JobOption("notify", "--notify", "WHEN[:WHERE]", kinds.NOTIFY,
              "send a notification: end, failure, first-failure or sweep-end (of the jobs submitted"
              " together), time-limit (near), gpu-lost, all; none: not even the default. WHERE: a"
              " place from `stoker notify ls`", repeats=True),
    JobOption("snapshot", "--snapshot", None, kinds.SWITCH,
              "copy the code of the folder's git repository now, and run the job in the copy",
              in_queue=True),
    JobOption("no_snapshot", "--no-snapshot", None, kinds.SWITCH,
              "run the job in its folder, although the settings ask for snapshots",
              in_queue=True),
    JobOption("no_bind", "--no-bind", None, kinds.SWITCH,
              "do not bind the job to the CPUs near its GPUs (hosts with several NUMA nodes)",
              in_settings=True),
    JobOption("conda", "--conda", "ENV", kinds.NAME,
              "run in this conda environment (conda, mamba, micromamba), by name or path"),
    JobOption("venv", "--venv", "PATH", kinds.PATH,
              "run in this virtual environment of Python"),
    JobOption("uv", "--uv", None, kinds.SWITCH,
              "run in the environment of the uv project that contains the working directory"),
    JobOption("module", "--module", "NAME", kinds.TEXTS,
              "load this environment module first, e.g. cuda/12.4; in the order given",
              repeats=True),
    JobOption("container", "--container", "IMAGE", kinds.NAME,
              "run in a container of this image (docker, podman, apptainer) with the job's GPUs"),
    JobOption("mount", "--mount", "SRC:DST", kinds.TEXTS,
              "with --container: a folder that it can use, at this path; SRC:DST:ro for reading",
              repeats=True),
    JobOption("profile", "--profile", "NAME", kinds.TEXTS,
              "use the options of this profile in the settings; other options override them",
              repeats=True),
)  # fmt: skip
DEDUPE = JobOption("dedupe", "--dedupe", "KEY", kinds.NAME, "", is_single=True)
BY_KEY = {option.key: option for option in (*JOB_OPTIONS, DEDUPE)}
NAMES = tuple(BY_KEY)


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


# -- reading -------------------------------------------------------------------------------------


def flag_options(options: Iterable[JobOption] = JOB_OPTIONS) -> tuple[Option, ...]:
    """Job options as options of the command-line parser."""
    return tuple(
        Option(
            one.flags,
            one.help,
            one.value,
            one.kind.parse,
            many=one.repeats,
            optional=one.optional,
            completes=one.kind.completes,
        )
        for one in options
    )


def flag_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Job options among the values of a parsed command line, by key; repeated flags are joined."""
    found = {}
    for option in BY_KEY.values():
        value = values.get(option.flags.split()[-1].lstrip("-").replace("-", "_"))
        if value is not None:
            found[option.key] = (
                tuple(x for some in value for x in some) if option.repeats else value
            )
    return found


def file_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a sweep file, whose values are written as on the command line."""
    values: dict[str, Any] = {}
    for key, value in options.items():
        option = BY_KEY["tags" if key == "tag" else key]
        if isinstance(value, Mapping):
            value = [f"{name}={text}" for name, text in value.items()]
        elif isinstance(value, list) and not option.repeats:
            value = ",".join(map(str, value))
        for one in value if isinstance(value, list) else [value]:
            if one is None or one is False:
                continue
            try:
                read = option.kind.parse(str(one))
            except UsageError as error:
                raise name_option(f"`{key}`", error, key) from None
            values[option.key] = (*values.get(option.key, ()), *read) if option.repeats else read
    return values


def check_names(options: Iterable[str], known: tuple[str, ...], what: str) -> None:
    """Raise UsageError for an unknown option, with the most similar known one as hint."""
    for key in options:
        if key not in known:
            from stoker.text.suggestions import nearest

            near = nearest(key, known)
            hint = f"did you mean `{near}`?" if near else f"options: {', '.join(known)}"
            raise UsageError(f"`{key}` is not an option of {what}", hint)


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


def check_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check Python or JSON values one by one. Raises UsageError that names the option."""
    check_names(options, NAMES, "a job")
    values = {}
    for key, value in options.items():
        if value is not None:
            with about(key):
                try:
                    values[key] = BY_KEY[key].kind.check(value)
                except UsageError as error:
                    raise name_option(f"`{key}`", error) from None
    return values


def as_flag(key: str, value: object = None) -> str:
    """The option on the command line: "`--gpus`" for errors, "--gpus 2" for hints."""
    flag = BY_KEY[key].flags.split()[-1]
    return f"`{flag}`" if value is None else f"{flag} {value}"


def as_keyword(key: str, value: object = None) -> str:
    """The option in Python and JSON: "`gpus`" for errors, "gpus=2" for hints."""
    if value is None:
        return f"`{key}`"
    return f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}"


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
        environment=environment_values(values, named),
    )


# -- the job -------------------------------------------------------------------------------------


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
    from stoker.client.queue import check_possible, output_path

    backend = options.request.backend or ("" if in_foreground else settings.backend or "")
    if backend not in ("", LOCAL):
        from stoker.features.backends.backend_requests import complete_for_backend

        request = complete_for_backend(options, settings, backend)
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
        stdout = output_path(options.stdout, context.cwd, is_elsewhere=is_elsewhere)
    with about("stderr"):
        stderr = output_path(options.stderr, context.cwd, is_elsewhere=is_elsewhere)
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
        activation=make_activation(
            options.environment, names, context, settings, request, options.named
        ),
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
    from stoker.features.notify.notify_settings import resolve

    try:
        if in_foreground and options.notify is not None:
            return resolve(_of_foreground(options.notify), settings.notify, False)
        return resolve(options.notify, settings.notify, True)
    except UsageError as error:
        raise name_option(options.named("notify"), error, "notify") from None


def _of_foreground(rules: tuple[Any, ...]) -> tuple[Any, ...]:
    """The rules for a foreground run, which notifies when it ends: `all` has no time limit."""
    from stoker.features.notify.rules import EVENTS, TIME_LIMIT

    if {rule.when for rule in rules} < set(EVENTS) and any(r.when == TIME_LIMIT for r in rules):
        raise UsageError(
            f"`{TIME_LIMIT}` needs the daemon; a foreground run notifies when it ends",
            "submit the job, or remove it",
        )
    return tuple(rule for rule in rules if rule.when != TIME_LIMIT)


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
    from stoker.client.queue import current_context

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
    from stoker.client.submit.host_requests import check_host_of_queue, check_host_possible
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
