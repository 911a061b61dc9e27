"""Resources of a host in words: what a job needs, what is free."""

from __future__ import annotations

from stoker.engine.model import Request
from stoker.engine.policy.host_room import HostRoom
from stoker.engine.policy.host_share import CORES, COUNTER, CPU_SLOTS, MEMORY, MILLI
from stoker.text.plurals import plural
from stoker.text.sizes import format_size


def declared_words(request: Request) -> list[str]:
    """Return what a request declares of the host: `8 cores`, `20 GiB of memory`, `1 licence`."""
    words = []
    if request.cpus:
        words.append(plural(request.cpus, "core"))
    if request.host_memory is not None:
        words.append(f"{format_size(request.host_memory)} of memory")
    elif request.is_auto_host:
        words.append("memory (auto)")
    words += [" ".join(need.partition("=")[::-2]) for need in request.needs]
    return words


def cores_words(cores: float) -> str:
    """`1 core`, `2 cores`, `0.5 cores`."""
    return f"{cores:.3g} core{'' if cores == 1 else 's'}"


def amount_words(name: str, amount: int) -> str:
    """`2 cores`, `20 GiB of memory`, `1 licence`, `1 CPU slot`."""
    if name == CORES:
        return cores_words(amount / MILLI)
    if name == MEMORY:
        return f"{format_size(amount)} of memory"
    if name == CPU_SLOTS:
        return plural(amount, "CPU slot")
    return f"{amount} {name.removeprefix(COUNTER)}"


def free_words(name: str, host: HostRoom) -> str:
    """`3 of 16 are free`, `5 GiB of 64 GiB are free`."""
    free, total = max(0, host.free.get(name, 0)), host.totals.get(name, 0)
    if name == MEMORY:
        return f"{format_size(free)} of {format_size(total)} are free"
    if name == CORES:
        return f"{free / MILLI:.3g} of {total // MILLI} are free"
    return f"{free} of {total} are free"
