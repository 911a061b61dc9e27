"""Why a job waits in a few words, for lists: `behind 4 jobs`, `GPU 2 reserved for 25`.

explain.py has the full sentences for the same reasons.
"""

from __future__ import annotations

from stoker.engine.model import Plan, Request, Snapshot
from stoker.engine.policy.decide import (
    ARRAY_LIMIT,
    DRAINING,
    GROUP_LIMIT,
    HOST_RESERVED,
    IMPOSSIBLE,
    NO_CPU_SLOT,
    NO_HOST_ROOM,
    RESERVED,
    VACATING,
    AnyJob,
    array_key,
    host_room_of,
    pool_of,
)
from stoker.engine.policy.eligible import is_eligible
from stoker.engine.policy.explain import Place, room_after
from stoker.engine.policy.host_share import CPU_SLOTS
from stoker.engine.policy.host_words import amount_words
from stoker.text.plurals import plural, plural_word
from stoker.text.sizes import format_size

SEPARATOR = " · "
_NAMED = 3  # GPUs that are named; of more, only the number


def behind(place: Place) -> str:
    """
    >>> behind(Place(4)), behind(Place(1)), behind(Place(200, is_exact=False)), behind(Place(0))
    ('behind 4 jobs', 'behind 1 job', 'behind 200+ jobs', '')
    """
    if not place.ahead:
        return ""
    more = "" if place.is_exact else "+"
    return f"behind {place.ahead}{more} {plural_word(2 if more else place.ahead, 'job')}"


def short_reason(job: AnyJob, snapshot: Snapshot, plan: Plan) -> tuple[str, bool]:
    """Return why a job waits in a few words, and whether the jobs before it are a reason too.

    The words are empty if the jobs before it are all that is known.
    """
    reason = plan.waits.get(job.id)
    if reason is None:
        group = [other.id for other in snapshot.waiting if other.request_group == job.request_group]
        reason = next((plan.waits[id] for id in group if id in plan.waits), None)
    request = job.request
    if reason == DRAINING:
        return "the queue is drained", False
    if reason == IMPOSSIBLE:
        return _impossible(request, snapshot), False
    if reason == GROUP_LIMIT:
        return f"limit of {(snapshot.limits or {}).get(job.fair_share_group, 0)} running", False
    if reason == ARRAY_LIMIT:
        return f"array limit of {(snapshot.limits or {}).get(array_key(request), 0)} running", False
    if reason == NO_CPU_SLOT:
        return f"all {snapshot.cpu_slots} CPU slots in use", True
    if reason == NO_HOST_ROOM:
        return _lacking(job, snapshot, plan), True
    if reason == HOST_RESERVED:
        return _host_reserved(job, snapshot, plan), True
    if reason == VACATING and job.kept:
        return f"{_gpus(job.kept, snapshot)} being vacated for it", False
    if reason == RESERVED and plan.reservation is not None:
        return (
            f"{_gpus(plan.reservation.devices, snapshot)} reserved for {plan.reservation.job}",
            True,
        )
    return (_no_device(request, snapshot, plan) if request.gpus else ""), True


def reserved_for(snapshot: Snapshot, plan: Plan) -> dict[int, int]:
    """Return the jobs for which devices are reserved or being vacated, by number of the device.

    Without the busy device that a job with one GPU gets next: that is no more than the order of
    the queue.
    """
    found = {}
    held = plan.reservation
    if held is not None:
        busy = {number for job in snapshot.running for number in job.devices}
        is_one = len(held.devices) == 1
        found = {number: held.job for number in held.devices if not is_one or number not in busy}
    for job in snapshot.waiting:
        if job.kept and plan.waits.get(job.id) == VACATING:
            found |= dict.fromkeys(job.kept, job.id)
    return found


def _gpus(numbers: tuple[int, ...], snapshot: Snapshot) -> str:
    """`GPU 2`, `GPUs 2, 3`, `5 GPUs`."""
    if len(numbers) > _NAMED:
        return plural(len(numbers), "GPU")
    visible = {device.number: device.visible for device in snapshot.devices}
    names = ", ".join(visible.get(number, str(number)) for number in sorted(numbers))
    return f"{plural_word(len(numbers), 'GPU')} {names}"


def _impossible(request: Request, snapshot: Snapshot) -> str:
    host = host_room_of(snapshot)
    for name, amount in host.claim_of(request).items():
        if amount > host.totals.get(name, 0) and name != CPU_SLOTS:
            has = amount_words(name, host.totals.get(name, 0))
            return f"needs {amount_words(name, amount)}, the host has {has}"
    fitting = sum(1 for device in snapshot.devices if is_eligible(request, device))
    qualify = "qualifies" if fitting == 1 else "qualify"
    return f"needs {_request_words(request)}, {fitting or 'none'} {qualify}"


def _request_words(request: Request) -> str:
    memory = "" if request.memory is None else f" with {format_size(request.memory)}"
    return f"{plural(request.gpus, 'GPU')}{memory}"


def _lacking(job: AnyJob, snapshot: Snapshot, plan: Plan) -> str:
    host = room_after(snapshot, plan)
    claim = host.claim_of(job.request)
    names = host.lacks(claim) or list(claim)
    if not names:
        return ""
    name = names[0]
    free = amount_words(name, max(0, host.free.get(name, 0)))
    return f"needs {amount_words(name, claim[name])}, {free} free"


def _host_reserved(job: AnyJob, snapshot: Snapshot, plan: Plan) -> str:
    claim = host_room_of(snapshot).claim_of(job.request)
    name = next((name for name in claim if name != CPU_SLOTS), CPU_SLOTS)
    held = plan.host_reservation or plan.reservation
    whose = "" if held is None else f" for {held.job}"
    return f"{amount_words(name, claim.get(name, 0))} reserved{whose}"


def _no_device(request: Request, snapshot: Snapshot, plan: Plan) -> str:
    """`needs 4 GPUs, 1 is free`; `no GPU is free`, also where the plan starts other jobs."""
    taken = {number for start in plan.starts for number in start.devices}
    count = 0
    for number, room in pool_of(snapshot).rooms.items():
        if number not in taken and is_eligible(request, room.device):
            count += room.fits(room.needed_by(request))
    memory = "" if request.memory is None else f" with {format_size(request.memory)}"
    if request.gpus == 1 or not count:
        return f"no GPU{memory} is free" if not count else f"waits for a GPU{memory}"
    return f"needs {_request_words(request)}, {count} {'is' if count == 1 else 'are'} free"
