"""Flags and words become a JobSpec: what `submit`, `run` and `sweep` have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stoker.client.queue import check_possible, current_context, output_path
from stoker.core.formats.command_line import Option, Parsed, Verb, count, parse, whole_number
from stoker.core.formats.durations import parse_duration, parse_size
from stoker.core.formats.shell_words import MAX_ARGUMENT_BYTES
from stoker.core.model import Context, Dependency, Device, JobSpec, Request
from stoker.core.record import Record
from stoker.errors import Error, Unavailable, UsageError
from stoker.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.core.formats.job_file import JobLine
    from stoker.sweeps.spec import SweepSpec


def dependencies(text: str) -> list[Dependency]:
    found = []
    for part in text.split(","):
        job, _, condition = part.partition(":")
        if not (job.isascii() and job.isdigit() and len(job) < 19) or condition not in (
            "",
            "ok",
            "any",
            "notok",
        ):
            raise UsageError(f"`{part}` is not a dependency", "write 7, 7:ok, 7:any or 7:notok")
        found.append(Dependency(int(job), condition or "ok"))
    return found


def pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key:
        raise UsageError(f"`{text}` is not an environment variable", "write NAME=VALUE")
    return key, value if equals else os.environ.get(key, "")


def _memory(text: str) -> int | str:
    if text == "auto":
        return text
    size = parse_size(text)
    if not size:
        raise UsageError("the size is 0", "write --gpu-mem 20G or auto")
    return size


def _names(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(f"`{text}` is not a list of GPUs", "write 0,2 or UUIDs, each once")
    return names


def _on_oom(text: str) -> str:
    if text not in ("bigger", "elsewhere", "alone", "fail"):
        raise UsageError(f"`{text}` is not a value of --on-oom",
                         "write bigger, elsewhere, alone or fail")  # fmt: skip
    return text


def _warning(text: str) -> str:
    from stoker.core.formats.limit_signal import parse_warning

    parse_warning(text)
    return text


def tags_of(text: str) -> list[str]:
    """`a,b` are two tags: a comma in a selector stands between two of them as well."""
    tags = [word.strip() for word in text.split(",")]
    if not all(tags):
        raise UsageError("a tag cannot be empty" if not text.strip() else
                         f"`{text}` has an empty tag")  # fmt: skip
    return tags


def _tags(text: str) -> str:
    tags_of(text)
    return text


def _path(text: str) -> str:
    if not text:
        raise UsageError("the path is empty")
    return text


def _begin(text: str) -> float:
    from stoker.cli.times import parse_time

    return parse_time(text)


# Flags that say what a job is; job files may give them per line behind `#stoker`.
JOB_OPTIONS = (
    Option("-G --gpus", "GPUs for each job (default: 1 where there are any; 0: none)", "N", count),
    Option("-M --gpu-mem", "GPU memory to reserve on each GPU, 20G; auto: the peak of earlier runs",
           "SIZE", _memory),
    Option("--gpu-ids", "only these GPUs: 0,2 or UUIDs", "LIST", _names),
    Option("--prefer", "these GPUs first", "LIST", _names),
    Option("--gpu-model", "only GPUs of this model, such as H200", "NAME"),
    Option("--min-gpu-mem", "only GPUs with at least this much memory", "SIZE", parse_size),
    Option("--exclusive", "whole GPUs, however many slots they have"),
    Option("--on-oom", "out of GPU memory: bigger, elsewhere, alone or fail", "HOW", _on_oom),
    Option("-n --name", "a name to find it by", "NAME"),
    Option("-C --cwd", "run it in this folder (default: here)", "DIR"),
    Option("-E --env", "set a variable; NAME alone copies it", "K=V", pair, many=True),
    Option("--env-file", "variables from a file, one K=V a line", "FILE", many=True),
    Option("-p --priority", "higher goes first (default: 0)", "N", whole_number),
    Option("-d --after", "wait for jobs: 7, 7:ok, 7:any, 7:notok", "ID[:COND]", dependencies,
           many=True),
    Option("-t --time-limit", "stop it after this long: 90s, 30m, 2h, HH:MM:SS (bare: minutes)",
           "TIME", parse_duration),
    Option("--grace", "seconds between SIGTERM and SIGKILL", "TIME",
           lambda text: parse_duration(text, "s")),
    Option("--signal", "warn it before the time limit: USR1@60 (B:USR1@60: its shell only)",
           "SIG[@TIME]", _warning),
    Option("-r --retries", "try again up to N times when it fails, with back-off", "N", count),
    Option("--restartable", "may run again after a crash that left no exit code"),
    Option("--begin", "not before: 14:30, +2h, 2026-12-24T18:00", "TIME", _begin),
    Option("-T --tag", "a tag to find it by; a,b are two", "TAG", _tags, many=True),
    Option("-o --stdout", "write its output there; %j is its id (default: kept by stoker)", "PATH",
           _path),
    Option("-e --stderr", "write its error output there (default: with its output)", "PATH", _path),
    Option("--hold", "queue it, but do not start it before `stoker release`"),
    Option("--keep-children", "leave processes alone that outlive its first one"),
)  # fmt: skip


# They make a job wait for something that only comes to pass in the queue.
_NOT_IN_FOREGROUND = ("hold", "begin", "after")


# Options that say which GPUs a job runs on: with others, it is another job.
_RESOURCES = ("gpus", "gpu_ids", "gpu_model", "min_gpu_mem", "exclusive")


class ResumableJob(Record):
    """A line of a job file, and which job of an earlier run it is."""

    spec: JobSpec
    identity: str
    declared_env: tuple[tuple[str, str], ...]


class SpecMaker:
    """Turns words or lines into specs under the flags of one command line."""

    def __init__(
        self,
        settings: Settings,
        devices: tuple[Device, ...],
        parsed: Parsed,
        *,
        in_foreground: bool = False,
    ) -> None:
        self._in_foreground = in_foreground
        self._settings = settings
        self._parsed = parsed
        self._devices = devices
        self._contexts: dict[tuple[object, ...], Context] = {}
        self._plain = self._make(parsed, (), True)

    @property
    def base(self) -> JobSpec:
        """Everything but the command."""
        return self._plain

    def command(self, words: list[str]) -> JobSpec:
        _check_words(words)
        spec = self._plain
        return spec._replace(argv=tuple(words), shell=len(words) == 1 and not self._parsed.dashed,
                             dedupe=self._parsed["dedupe"])  # fmt: skip

    def line(self, line: JobLine) -> JobSpec:
        """A line of a job file; its own flags come on top of the command line's."""
        return self._line(line)[0]

    def resumable_line(self, line: JobLine) -> ResumableJob:
        """The same, with what tells it from the other jobs of the file."""
        from stoker.core.job_identity import job_identity

        spec, parsed = self._line(line)
        env = _declared_env(parsed)
        resources = [(key, parsed[key]) for key in _RESOURCES if parsed[key] is not None]
        return ResumableJob(spec, job_identity(spec, env, resources), tuple(env))

    def _line(self, line: JobLine) -> tuple[JobSpec, Parsed]:
        spec, merged = self._plain, self._parsed
        if line.flags:
            import shlex

            try:
                flags = shlex.split(line.flags)
            except ValueError as error:
                raise UsageError(f"line {line.number}: {error}") from None
            try:
                own = parse(Verb("submit", "", "", JOB_OPTIONS, words="files"), flags)
                if own.words:
                    raise UsageError(f"`{own.words[0]}` is not an option")
                if self._in_foreground:
                    _check_foreground(own)
                merged = self._merged(own)
                spec = self._make(merged, (), True)
            except Error as error:
                raise type(error)(f"line {line.number}: {error.message}", error.hint) from None
        key = self._parsed["dedupe"]
        spec = spec._replace(argv=(line.text,))
        if key is not None:
            spec = spec._replace(dedupe=f"{key}:{line.number}")
        return spec, merged

    def _merged(self, own: Parsed) -> Parsed:
        """A line's own flags over the command line's; those that may be repeated add up."""
        values = {**self._parsed.values, **own.values}
        for option in JOB_OPTIONS:
            if option.many and option.key in own.values:
                values[option.key] = [*(self._parsed[option.key] or ()), *own[option.key]]
        return Parsed(values, [], False)

    def _make(self, parsed: Parsed, argv: tuple[str, ...], shell: bool) -> JobSpec:
        request = self._request(parsed)
        check_possible(request, self._devices)
        context = self._context(parsed)
        if parsed["signal"] is not None and not parsed["time_limit"]:
            raise UsageError("--signal needs --time-limit",
                             "add --time-limit 2h")  # fmt: skip
        return JobSpec(
            argv=argv,
            context=context,
            shell=shell,
            request=request,
            name=parsed["name"],
            priority=parsed["priority"] or 0,
            after=tuple(dependency for some in parsed["after"] or () for dependency in some),
            time_limit=parsed["time_limit"] or None,
            grace=parsed["grace"],
            retries=parsed["retries"] or 0,
            restartable=bool(parsed["restartable"]),
            begin_at=parsed["begin"],
            tags=tuple(tag for text in parsed["tag"] or () for tag in tags_of(text)),
            stdout=output_path(parsed["stdout"], context.cwd),
            stderr=output_path(parsed["stderr"], context.cwd),
            held=bool(parsed["hold"]),
            keep_children=bool(parsed["keep_children"]),
            on_oom=parsed["on_oom"],
            warn=parsed["signal"],
        )

    def _request(self, parsed: Parsed) -> Request:
        gpus, memory, ids = parsed["gpus"], parsed["gpu_mem"], parsed["gpu_ids"] or ()
        if gpus is None:
            gpus = len(ids) or (1 if self._devices else 0)
            if not gpus and not self._settings.devices:
                _check_driver()
        if memory is not None and parsed["exclusive"]:
            raise UsageError("--gpu-mem shares a GPU and --exclusive does not", "give one")
        if not gpus and (memory is not None or ids or parsed["exclusive"]):
            raise UsageError("--gpu-mem, --gpu-ids and --exclusive need --gpus 1 or more",
                             "leave them out, or leave out --gpus 0")  # fmt: skip
        if gpus and not ids and not self._in_foreground:
            ids = _masked(self._devices)
        return Request(
            gpus, None if memory == "auto" else memory, bool(parsed["exclusive"]), ids,
            parsed["prefer"] or (), parsed["gpu_model"], parsed["min_gpu_mem"], memory == "auto",
        )  # fmt: skip

    def _context(self, parsed: Parsed) -> Context:
        key = (parsed["cwd"], tuple(parsed["env"] or ()), tuple(parsed["env_file"] or ()))
        if key not in self._contexts:
            try:
                cwd = os.path.abspath(parsed["cwd"]) if parsed["cwd"] else os.getcwd()
            except FileNotFoundError:
                raise UsageError("the folder you are in was removed", "cd somewhere else") from None
            if not os.path.isdir(cwd):
                raise UsageError(f"the folder `{cwd}` does not exist")
            self._contexts[key] = current_context(self._settings, cwd, _declared_env(parsed))
            _check_size(self._contexts[key])
        return self._contexts[key]


def base_of(
    settings: Settings,
    devices: tuple[Device, ...],
    sweep: SweepSpec,
    parsed: Parsed,
    *,
    in_foreground: bool = False,
) -> JobSpec:
    """What all jobs of a sweep have in common: the words of its file, and over them the flags."""
    flags: list[str] = []
    for key, value in (sweep.resources or {}).items():
        name = f"--{key.replace('_', '-')}"
        if key == "env" and isinstance(value, dict):
            value = [f"{k}={v}" for k, v in value.items()]
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                flags.append(name)
            elif one is not False and one is not None:  # 0 is a value
                flags += [name, str(one)]
    own = parse(Verb("sweep", "", "", JOB_OPTIONS, words="none"), flags)
    if in_foreground:
        _check_foreground(own)
    values = {**own.values, **parsed.values, "name": None}
    return SpecMaker(settings, devices, Parsed(values, [], False)).base


def _check_foreground(own: Parsed) -> None:
    """Flags that would let `stoker run` wait for ever."""
    for key in _NOT_IN_FOREGROUND:
        if own[key]:
            raise UsageError(f"`--{key}` is for jobs in the queue, and `stoker run` has none",
                             "leave it out, or use `stoker submit`")  # fmt: skip


def _masked(devices: tuple[Device, ...]) -> tuple[str, ...]:
    """The cards that CUDA_VISIBLE_DEVICES leaves its user, where it names any that we know.

    Inside a job it is what Stoker gave to that job, and says nothing of others.
    """
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not mask or "STOKER_JOB_ID" in os.environ:
        return ()
    from stoker.core.policy.placement import is_named
    from stoker.devices.discovery import visible_names

    names = visible_names(mask).split(",")
    known = tuple(name for name in names if any(is_named(device, (name,)) for device in devices))
    return known if len(known) < len(devices) else ()


def _check_driver() -> None:
    """A GPU job must not become a CPU job because the driver happens to be silent."""
    from stoker.devices.discovery import has_driver

    if has_driver():
        from stoker.devices.nvml_client import sample_once

        sample = sample_once()
        if sample.cards is None:
            raise Unavailable(
                f"cannot tell which GPUs this host has: {sample.trouble}",
                "a job without a GPU: --gpus 0; else see `stoker doctor`",
            )


def _check_words(words: list[str]) -> None:
    for number, word in enumerate(words, 1):
        if "\0" in word:
            raise UsageError(f"word {number} of the command holds a NUL byte")
        if len(words) > 1 and len(os.fsencode(word)) > MAX_ARGUMENT_BYTES:
            raise UsageError(
                f"word {number} of the command has {len(os.fsencode(word))} bytes, and Linux "
                f"allows {MAX_ARGUMENT_BYTES}",
                "put it into a file, or give the whole command as one quoted word",
            )
    if not words[0].strip():
        raise UsageError("the command is empty")


def _check_size(context: Context) -> None:
    size = sum(len(key) + len(value) + 10 for key, value in context.env)
    for key, value in context.env:
        if len(os.fsencode(value)) + len(key) + 2 > MAX_ARGUMENT_BYTES:
            raise UsageError(f"the variable `{key}` is too large for any program (over 128 kB)")
    if size > 1_500_000:
        raise UsageError(f"the environment has {size} bytes, too many for any program to start")


def _declared_env(parsed: Parsed) -> list[tuple[str, str]]:
    """The variables that --env-file and --env set; later ones win."""
    from_files = [pair for path in parsed["env_file"] or () for pair in _env_file(path)]
    return [*from_files, *(parsed["env"] or ())]


def _env_file(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for number, raw in enumerate(file, 1):
                line = raw.strip().removeprefix("export ")
                if not line or line.startswith("#"):
                    continue
                key, equals, value = line.partition("=")
                if not equals or not key or "\0" in line:
                    raise UsageError(f"line {number} of `{path}` is not NAME=VALUE")
                yield key, value.strip("\"'") if value[:1] in "\"'" else value
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
