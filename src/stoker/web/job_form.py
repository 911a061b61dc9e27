"""Turn the form of one job, or the text of many, into JobSpecs, and queue them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from stoker.client.queue import Queue
from stoker.client.submit.job_options import NAMES, as_keyword, check_values
from stoker.client.submit.job_specs import JobSpecs
from stoker.client.submit.parsed_options import check_words, make_spec, read_options
from stoker.client.submit.spec_options import hidden_settings
from stoker.client.views import job as views
from stoker.engine.job_settings import settings_of
from stoker.engine.model import AfterSelector, Dependency, JobSpec
from stoker.engine.store.clone_source import CloneSource, clone_source_of
from stoker.errors import Unavailable, UsageError, about
from stoker.features.backends.views import request_words
from stoker.text.activation import shown_activation
from stoker.text.commands import job_file
from stoker.text.commands.shell_words import display
from stoker.web.models import NewBatch, NewJob
from stoker.web.option_forms import JobOptions


def options_of(form: JobOptions) -> dict[str, Any]:
    """The job options of a form, as the Python API expects them."""
    given = {
        key: value
        for key, value in form.model_dump(include=set(NAMES)).items()
        if value is not None and value != "" and value != []
    }
    given["cwd"] = folder_of(given.get("cwd"))
    for key in ("stdout", "stderr"):
        if key in given:
            with about(key):
                given[key] = check_relative(given[key])
    return given


def folder_of(text: str | None) -> str:
    """An absolute path; relative ones start in the home folder, since the server runs in `/`."""
    home = os.path.expanduser("~")
    path = os.path.expanduser(text) if text else home
    return path if os.path.isabs(path) else os.path.join(home, path)


def check_relative(path: str) -> str:
    """Check an output path: the web UI only writes below the folder of the job."""
    if "\0" in path or os.path.isabs(path) or ".." in path.split("/"):
        raise UsageError(
            f"`{path}` is not below the job's folder", "give a relative path without `..`"
        )
    return path


def job_of(queue: Queue, form: NewJob) -> JobSpec:
    """The job that a form describes; an error names the field at fault."""
    if (form.command is None) == (form.argv is None):
        raise UsageError(
            "a job needs a command", 'give "command" (shell text) or "argv"', "command"
        )
    base = base_of(queue, options_of(form))
    if form.based_on is not None:
        given = form.model_dump(exclude_none=True)
        base = _based_on(base, given, clone_source_of(queue.db, form.based_on))
    if form.argv is not None:
        return with_argv(base, tuple(form.argv))
    return with_text(base, form.command or "")


def _based_on(base: JobSpec, given: Mapping[str, Any], old: CloneSource) -> JobSpec:
    """Use the environment of another job, as a rerun does; fields of the form take precedence."""
    env = {
        **dict(old.context.env),
        **{key: _as_text(value) for key, value in given.get("env", {}).items()},
    }
    cwd = base.context.cwd if given.get("cwd") else old.context.cwd
    hidden = hidden_settings(old.settings, given)
    if base.time_limit is None:
        hidden.pop("signal", None)  # it is sent before the time limit
    return base._replace(
        context=old.context._replace(cwd=cwd, env=tuple(sorted(env.items()))),
        settings=settings_of({**base.settings.values(), **hidden}),
        variables=old.variables,
    )


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def base_of(queue: Queue, options: Mapping[str, Any]) -> JobSpec:
    """A job with everything but the command."""
    return make_spec(read_options(options), queue.settings, queue.devices())


def with_argv(base: JobSpec, words: tuple[str, ...]) -> JobSpec:
    check_words(words)
    return base._replace(argv=words, shell=False)


def with_text(base: JobSpec, text: str) -> JobSpec:
    if not text.strip():
        raise UsageError("the command is empty", field="command")
    check_words((text,))
    return base._replace(argv=(text,), shell=True)


def submit(
    queue: Queue, specs: list[JobSpec], now: float, token: str | None = None
) -> dict[str, object]:
    """Queue all jobs or, after an error, none; with a token, a repeated call adds nothing twice.

    If no daemon can be started, they stay queued and a warning says why.
    """
    jobs = queue.submission(token).add(specs, now).ids
    warning = None
    if any(not spec.held for spec in specs):
        try:
            queue.ensure_daemon()
        except Unavailable as error:
            warning = error.message
    return {"jobs": jobs, "warning": warning}


def _with_condition(item: Dependency | AfterSelector) -> str:
    text = str(item.job) if isinstance(item, Dependency) else item.text
    return f"{text}:{item.condition}"


def environment_words(spec: JobSpec) -> str:
    """The environment of a job, for a dry run: `conda /envs/vision`; "" if it has none."""
    return ", ".join(
        f"{label} {text}" for label, text in shown_activation(spec.settings.activation)
    )


def shown(specs: Iterable[JobSpec]) -> list[dict[str, object]]:
    """What a dry run shows of these jobs."""
    return [
        {**views.spec_json(spec), "command": display(spec.argv, spec.shell),
         "needs": request_words(spec.request), "environment": environment_words(spec),
         "stdout": spec.stdout, "hold": spec.held,
         "after": [_with_condition(one) for one in spec.after]}
        for spec in specs
    ]  # fmt: skip


# Many jobs in one text, one per line.
#
# # comments, a backslash continues the line
# python train.py --lr 0.1   #stoker --gpus 2
# python train.py --lr 0.01

_MAX_JOBS = 100_000


def jobs_of(queue: Queue, form: NewBatch) -> list[JobSpec]:
    """The jobs of a form; raises UsageError when one of them is invalid or there is none."""
    options = options_of(form)
    if "\0" in form.text:
        raise UsageError("the text contains a NUL byte")

    def check_line(own: dict[str, Any]) -> dict[str, Any]:
        if "env_file" in own:
            raise UsageError("`--env-file` cannot be used here")
        if "cwd" in own:
            own["cwd"] = os.path.join(options["cwd"], os.path.expanduser(own["cwd"]))
        for key in ("stdout", "stderr"):
            if key in own:
                check_relative(own[key])
        return own

    specs = JobSpecs(
        queue.settings,
        queue.devices(),
        check_values(options),
        named=as_keyword,
        check_line=check_line,
    )
    found: list[JobSpec] = []
    for line in job_file.parse(form.text.split("\n")):
        if len(found) == _MAX_JOBS:
            raise UsageError(
                f"the text has more than {_MAX_JOBS} jobs",
                "`stoker submit --file` has no such limit",
            )
        spec = specs.line(line)
        check_words(spec.argv)
        found.append(spec)
    if not found:
        raise UsageError("the text contains no job", "write one command per line")
    return found
