"""The options of a job specification: the inverse of `make_spec`, for clones."""

from __future__ import annotations

from collections.abc import Container, Iterable

from stoker.client.submit.job_options import JOB_OPTIONS
from stoker.engine.job_settings import JobSettings
from stoker.engine.model import LOCAL, JobSpec
from stoker.engine.snapshot_context import original_context, original_folder
from stoker.text.activation import parse_activation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Settings that the forms of the web UI show; a clone keeps the others of the original.
_IN_FORMS = ("retries", "restartable", "on_oom", "warm", "notify", "activation")
_UNITS = (("G", 2**30), ("M", 2**20), ("K", 2**10))


def options_of_spec(spec: JobSpec) -> dict[str, object]:
    """The options of a job as JSON values, without its environment and what only one job has.

    Options with their default are left out, except the number of GPUs and the backend: the defaults
    of this host may have changed since.
    """
    request, settings = spec.request, spec.settings
    activation = parse_activation(settings.activation)
    found: dict[str, object] = {
        "gpu_mem": "auto" if request.is_auto else exact_size(request.memory),
        "gpu_ids": list(request.ids),
        "prefer": list(request.prefer),
        "gpu_model": request.model,
        "min_gpu_mem": exact_size(request.min_memory),
        "exclusive": request.exclusive,
        "share": request.share,
        "cpus": request.cpus,
        "mem": "auto" if request.is_auto_host else exact_size(request.host_memory),
        "need": list(request.needs),
        "nodes": request.nodes if request.nodes > 1 else None,
        "option": list(request.options),
        "priority": spec.priority,
        "time_limit": exact_time(spec.time_limit),
        **{o.key: settings.values().get(o.key) for o in JOB_OPTIONS if o.in_settings},
        "grace": exact_time(settings.grace),
        "restartable": settings.restartable and not request.preemptible,
        "warm": "auto" if settings.warm == "" else settings.warm,
        "preemptible": request.preemptible,
        "tags": list(spec.tags),
        "hold": spec.held,
        "notify": settings.notify.split(",") if settings.notify else [],
        "snapshot": spec.snapshot is not None,
        "conda": activation.conda,
        "venv": activation.venv,
        "uv": activation.uv,
        "module": list(activation.modules),
        "container": activation.container,
        "mount": list(activation.mounts),
    }
    return {
        "gpus": request.gpus,
        "on": request.backend or LOCAL,
        "cwd": original_folder(spec.context),
        **{key: value for key, value in found.items() if value},
    }


def hidden_settings(old: JobSettings, given: Container[str]) -> dict[str, Any]:
    """The settings of the original of a clone that its form does not show and did not send."""
    return {
        key: value
        for key, value in old.changes().items()
        if key not in _IN_FORMS and key not in given
    }


def in_context_of(
    spec: JobSpec, old: JobSpec, env: Iterable[tuple[str, str]] = (), *, has_folder: bool
) -> JobSpec:
    """The job with the environment of another one, and with these variables in addition.

    `has_folder`: whether it keeps its own folder.
    """
    context = original_context(old.context)
    variables = dict(context.env) | dict(env)
    folder = spec.context.cwd if has_folder else context.cwd
    return spec._replace(context=context._replace(cwd=folder, env=tuple(sorted(variables.items()))))


def exact_size(size: int | None) -> str | None:
    """
    >>> exact_size(20 << 30), exact_size(1000)
    ('20G', '1000')
    """
    if size is None:
        return None
    unit, factor = next(((u, f) for u, f in _UNITS if size % f == 0), ("", 1))
    return f"{size // factor}{unit}"


def exact_time(seconds: float | None) -> str | None:
    """
    >>> exact_time(5400), exact_time(7200), exact_time(2.5)
    ('90m', '2h', '2.5s')
    """
    if seconds is None:
        return None
    for unit, factor in (("h", 3600), ("m", 60)):
        if seconds and seconds % factor == 0:
            return f"{seconds // factor:g}{unit}"
    return f"{seconds:g}s"
