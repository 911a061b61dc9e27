"""What a job claims of its host: CPU slots, cores, memory and counters.

A claim maps the name of a resource to an amount. Cores are counted in thousandths, so that parts of
a core have an exact sum. Cores of a job without `--cpus`:

    without a GPU   one core, or its part of the cores if there are more CPU slots than cores
    with GPUs       one core, or its part of the cores if there are more GPU slots than cores

So jobs that declare nothing are never held back by the cores of a host with few of them, unless
jobs with and without GPUs run at the same time. Memory is claimed only if it was requested; while
`auto` has no estimate, it is a fair part of the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker.engine.model import Device, HostResources, Request, RunningJob
from stoker.engine.policy.placement import amount_of, capacity, is_measured
from stoker.record import Record

CPU_SLOTS = "cpu slots"
CORES = "cores"
MEMORY = "memory"
COUNTER = "counter "  # prefix of the names of counters, which are chosen by users

MILLI = 1000  # parts of a core

HostClaim = dict[str, int]


class HostLimits(Record):
    """The resources of a host, and the numbers of jobs among which they are divided."""

    resources: HostResources
    cpu_slots: int
    gpu_slots: int

    def totals(self) -> HostClaim:
        """Return the amount of each resource that is counted."""
        found = {CPU_SLOTS: self.cpu_slots}
        if self.resources.cores is not None:
            found[CORES] = self.resources.cores * MILLI
        if self.resources.memory is not None:
            found[MEMORY] = self.resources.memory
        for name, amount in self.resources.counters:
            found[COUNTER + name] = amount
        return found


def limits_of(resources: HostResources, cpu_slots: int, devices: Iterable[Device]) -> HostLimits:
    return HostLimits(resources, cpu_slots, sum(device.slots for device in devices))


def claim_of(request: Request, limits: HostLimits) -> HostClaim:
    """Return what a job with this request claims of the host."""
    claim: HostClaim = {} if request.gpus else {CPU_SLOTS: 1}
    if limits.resources.cores is not None:
        claim[CORES] = request.cpus * MILLI or default_share(request, limits)
    if limits.resources.memory is not None:
        if request.host_memory is not None:
            claim[MEMORY] = request.host_memory
        elif request.is_auto_host:
            claim[MEMORY] = fair_memory(request, limits)
    for need in request.needs:
        name, _, amount = need.partition("=")
        claim[COUNTER + name] = int(amount)
    return claim


def claim_of_running(job: RunningJob, limits: HostLimits) -> HostClaim:
    """Return what a running job claims: what it claimed when it started."""
    claim = claim_of(job.request, limits)
    if job.cpus is not None and CORES in claim:
        claim[CORES] = round(job.cpus * MILLI)
    return claim


def recorded_claim(request: Request, limits: HostLimits) -> tuple[float | None, int | None]:
    """Return the cores and the bytes that a job claims, to be recorded; None: not counted."""
    claim = claim_of(request, limits)
    return claim[CORES] / MILLI if CORES in claim else None, claim.get(MEMORY)


# So many jobs are assumed to share a GPU with one whose memory is not known yet.
_SHARERS = 8


def thread_share(
    request: Request, devices: Iterable[Device], all_devices: Iterable[Device], cores: int
) -> int:
    """Return how many threads a job should use: `--cpus`, or its part of the cores.

    That is one without a GPU, and the cores divided as the GPUs are otherwise.
    """
    if request.cpus or not request.gpus:
        return request.cpus or 1
    if is_measured(request):  # it likely shares its GPU with several others
        return max(1, cores // _SHARERS // max(1, sum(1 for _ in all_devices)))
    part = sum(
        min(1.0, amount_of(request, device) / max(1, capacity(device))) for device in devices
    )
    return max(1, int(cores * part / max(1, sum(1 for _ in all_devices))))


def default_share(request: Request, limits: HostLimits) -> int:
    """Return the thousandths of cores that a job without `--cpus` claims."""
    cores = limits.resources.cores or 0
    jobs = limits.gpu_slots if request.gpus else limits.cpu_slots
    return min(MILLI, cores * MILLI // max(1, jobs))


def fair_memory(request: Request, limits: HostLimits) -> int:
    """Return the bytes of a job with `--mem auto` whose command profile has no estimate."""
    memory = limits.resources.memory or 0
    if not request.gpus:
        return memory // max(1, limits.cpu_slots)
    return min(memory, memory * request.gpus // max(1, limits.gpu_slots))
