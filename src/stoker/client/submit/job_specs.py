"""Make job specifications from commands and lines of job files, with common options."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.client.submit.job_options import BY_KEY, JOB_OPTIONS, as_flag, flag_options, flag_values
from stoker.client.submit.option_values import OptionNames
from stoker.client.submit.parsed_options import (
    ParsedOptions,
    check_words,
    make_context,
    make_spec,
    parse_options,
    with_settings,
)
from stoker.engine.model import AfterSelector, Context, Device, JobSpec
from stoker.errors import Error, UsageError
from stoker.record import Record
from stoker.settings import Settings
from stoker.text.command_line import Verb, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.text.commands.job_file import JobLine

LINE_FLAGS = Verb("submit", "", "", flag_options(), words="files")
# Options that select GPUs are part of the identity of a job.
_RESOURCES = ("gpus", "gpu_ids", "gpu_model", "min_gpu_mem", "exclusive")


class ResumableJob(Record):
    """A job from a line of a job file, with its identity in later runs of the file."""

    spec: JobSpec
    identity: str
    declared_env: tuple[tuple[str, str], ...]


class JobSpecs:
    """Makes jobs that share options.

    `values`: the common options; `named`: their names in errors (see job_options.py).
    `check_line`: checks and changes the options of a single line.
    """

    def __init__(
        self,
        settings: Settings,
        devices: tuple[Device, ...],
        values: Mapping[str, Any],
        *,
        named: OptionNames = as_flag,
        in_foreground: bool = False,
        check_line: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: values,
    ) -> None:
        self._settings = settings
        self._devices = devices
        self._given = values
        self._in_foreground = in_foreground
        self._check_line = check_line
        self._contexts: dict[tuple[object, ...], Context] = {}
        self._flags = ""  # of the last line that had some, and what they mean:
        self._own: tuple[JobSpec, ParsedOptions, Mapping[str, Any]] | None = None
        self._values: Mapping[str, Any] = with_settings(values, settings)
        self._options = parse_options(self._values, named)
        self.base = self._make(self._options)

    def command(self, words: list[str], *, is_argv: bool) -> JobSpec:
        """The job of a command. A single word is shell text, unless `is_argv`."""
        check_words(tuple(words))
        return self.base._replace(argv=tuple(words), shell=len(words) == 1 and not is_argv)

    def line(self, line: JobLine) -> JobSpec:
        """The job of a line. The flags after its `#stoker` override the common options."""
        return self._line(line)[0]

    def resumable_line(self, line: JobLine) -> ResumableJob:
        """The job of a line, with its identity among the jobs of the file."""
        from stoker.client.submit.job_identity import job_identity

        spec, options, values = self._line(line)
        resources = [(key, values[key]) for key in _RESOURCES if values.get(key) is not None]
        identity = job_identity(spec, list(options.env), resources)
        return ResumableJob(spec, identity, options.env)

    def _line(self, line: JobLine) -> tuple[JobSpec, ParsedOptions, Mapping[str, Any]]:
        spec, options, values = self.base, self._options, self._values
        if line.flags:
            try:
                if line.flags != self._flags or self._own is None:
                    self._flags, self._own = line.flags, self._with_flags(line.flags)
                spec, options, values = self._own
            except Error as error:
                raise type(error)(f"line {line.flags_at}: {error.message}", error.hint) from None
        if spec.dedupe is not None:
            spec = spec._replace(dedupe=f"{spec.dedupe}:{line.number}")
        return spec._replace(argv=(line.text,)), options, values

    def _with_flags(self, flags: str) -> tuple[JobSpec, ParsedOptions, Mapping[str, Any]]:
        import shlex

        try:
            words = shlex.split(flags)
        except ValueError as error:
            raise UsageError(str(error)) from None
        parsed = parse(LINE_FLAGS, words)
        if parsed.words:
            raise UsageError(f"`{parsed.words[0]}` is not an option")
        for key in ("help", "debug", "json"):
            if parsed[key]:
                raise UsageError(f"`--{key}` cannot be used in a job file")
        own = self._check_line(flag_values(parsed.values))
        if "after" in own:  # it may name jobs of earlier lines
            own["after"] = tuple(
                one._replace(in_file=True) if isinstance(one, AfterSelector) else one
                for one in own["after"]
            )
        if self._in_foreground:
            check_foreground(own)
        values = with_settings(merged(self._given, own), self._settings)
        options = parse_options(values, as_flag)
        return self._make(options), options, values

    def _make(self, options: ParsedOptions) -> JobSpec:
        key = (options.cwd, options.env)
        if key not in self._contexts:
            self._contexts[key] = make_context(options, self._settings)
        return make_spec(
            options,
            self._settings,
            self._devices,
            context=self._contexts[key],
            in_foreground=self._in_foreground,
        )


def merged(values: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` over `values`; the values of repeatable options are joined."""
    found = {**values, **own}
    for option in JOB_OPTIONS:
        if option.repeats and option.key in own:
            found[option.key] = (*values.get(option.key, ()), *own[option.key])
    return found


def check_foreground(values: Mapping[str, Any]) -> None:
    """Raise UsageError for options that need the queue, such as `--after`."""
    for key, value in values.items():
        if value and BY_KEY[key].in_queue:
            raise UsageError(
                f"{as_flag(key)} is only for jobs in the queue, not for `stoker run`",
                "remove it, or use `stoker submit`",
            )
