"""Check what a job requests of its host: cores, memory and counters."""

from __future__ import annotations

from stoker.client.submit.job_options import OptionNames
from stoker.engine.daemon.status import known_resources
from stoker.engine.model import HostResources, Request
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
