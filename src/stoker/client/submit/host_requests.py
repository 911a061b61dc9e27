"""Check what a job requests of its host: GPUs, cores, memory and counters."""

from __future__ import annotations

from stoker.client.submit.option_values import OptionNames
from stoker.engine.daemon.status import known_resources
from stoker.engine.model import Device, HostResources, Request
from stoker.engine.policy.eligible import is_eligible, is_named
from stoker.engine.store.database import open_database
from stoker.errors import Impossible
from stoker.settings import Settings, prepare_state_dir
from stoker.text.plurals import plural
from stoker.text.sizes import format_size


def check_host_of_queue(request: Request, settings: Settings, named: OptionNames) -> None:
    """Raise Impossible if the host of the queue has less than the request declares."""
    prepare_state_dir(settings)
    db = open_database(settings.state_dir)
    try:
        resources = known_resources(db, settings)
    finally:
        db.close()
    check_host_possible(request, resources, named)


def check_host_possible(request: Request, resources: HostResources, named: OptionNames) -> None:
    """Raise Impossible if a host with these resources can never run such a job."""
    cores = resources.cores
    if cores is not None and request.cpus > cores:
        raise Impossible(
            f"the job requests {plural(request.cpus, 'core')}, but this host has {cores}",
            f"use {named('cpus', cores)} or less",
            "cpus",
        )
    if request.host_memory is not None and request.host_memory > (resources.memory or 0):
        has = format_size(resources.memory or 0)
        raise Impossible(
            f"the job requests {format_size(request.host_memory)} of memory, but this host has"
            f" {has}",
            f"use {named('mem', largest_size(resources.memory or 0))} or less",
            "mem",
        )
    counters = dict(resources.counters)
    for need in request.needs:
        name, _, amount = need.partition("=")
        if name not in counters:
            known = f"counters: {', '.join(counters)}" if counters else "none is defined"
            raise Impossible(
                f"there is no counter `{name}` on this host",
                f"{known}; define it: stoker config set resources.{name} {amount}",
                "need",
            )
        if int(amount) > counters[name]:
            raise Impossible(
                f"the job needs {amount} of `{name}`, but this host has {counters[name]}",
                f"use {named('need', f'{name}={counters[name]}')} or less",
                "need",
            )


def largest_size(count: int) -> str:
    """The largest size in whole units that is at most this: `62G` or `512M`."""
    return f"{count >> 30}G" if count >> 30 else f"{count >> 20}M"


def check_possible(
    request: Request,
    devices: tuple[Device, ...],
    named: OptionNames,
    *,
    is_masked: bool = False,
) -> None:
    """Raise Impossible, with a hint, for a request that this host can never satisfy.

    `is_masked`: the ids of the
    request are from CUDA_VISIBLE_DEVICES, not from an option.
    """
    if not request.gpus:
        return
    requests = f"the job requests {plural(request.gpus, 'GPU')}"
    if request.gpus > len(devices):
        has = plural(len(devices), "GPU") if devices else "no GPU"
        raise Impossible(
            f"{requests}, but this host has {has}",
            f"use {named('gpus', len(devices))}"
            + (" or fewer" if devices else ", a job without a GPU"),
            "gpus",
        )
    for field, names in (("gpu_ids", request.ids), ("prefer", request.prefer)):
        for name in names:
            if not any(is_named(device, (name,)) for device in devices):
                known = ", ".join(device.visible for device in devices)
                raise Impossible(
                    f"there is no GPU `{name}` on this host", f"its GPUs: {known}", field
                )
    fitting = sum(is_eligible(request, device) for device in devices)
    if fitting >= request.gpus:
        return
    hint = f"GPUs on this host: {_models(devices)}"
    listed = sum(is_named(device, request.ids) for device in devices)
    if request.ids and listed < request.gpus:
        source = "`CUDA_VISIBLE_DEVICES`" if is_masked else named("gpu_ids")
        raise Impossible(f"{requests}, but {source} lists {listed}", hint, "gpu_ids")
    without_memory = request._replace(memory=None)
    most = sorted((d.memory for d in devices if is_eligible(without_memory, d)), reverse=True)
    if request.memory is not None and len(most) >= request.gpus:
        largest = f"{most[request.gpus - 1] >> 30}G"
        hint = f"use {named('gpu_mem', largest)} or less; {hint}"
    among = f" among {','.join(request.ids)}" if request.ids else ""
    wanted = _wanted(request)
    raise Impossible(
        f"{requests}{among} with {' and '.join(wanted.values())}, "
        f"but {_matching(fitting, has_memory='gpu_model' not in wanted and not among)}",
        hint,
        next(iter(wanted)),
    )


def _wanted(request: Request) -> dict[str, str]:
    """What the GPUs of a request must have, by option."""
    wanted: dict[str, str] = {}
    if request.memory is not None:
        wanted["gpu_mem"] = f"{format_size(request.memory)} of shareable memory"
    if request.min_memory is not None:
        wanted["min_gpu_mem"] = f"{format_size(request.min_memory)} of memory"
    if request.model is not None:
        wanted["gpu_model"] = f"`{request.model}` in the model name"
    return wanted


def _matching(count: int, *, has_memory: bool) -> str:
    """How many GPUs match; `has_memory`: the request is only about memory."""
    if has_memory:
        if not count:
            return "no GPU on this host has that much memory"
        have = "has" if count == 1 else "have"
        return f"only {plural(count, 'GPU')} on this host {have} that much memory"
    if not count:
        return "no such GPU is on this host"
    return f"only {count} such GPU{'s are' if count > 1 else ' is'} on this host"


def _models(devices: tuple[Device, ...]) -> str:
    """`2 x NVIDIA H200 (141 GiB), 1 x NVIDIA A100 (80 GiB)`"""
    counts: dict[str, int] = {}
    for device in devices:
        memory = f" ({format_size(device.memory)})" if device.memory else ""
        model = f"{device.model or 'GPU'}{memory}"
        counts[model] = counts.get(model, 0) + 1
    return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items()))
