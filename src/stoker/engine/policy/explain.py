"""Why a job waits, in words, from the same snapshot and plan that start jobs."""

from __future__ import annotations

from collections.abc import Collection

from stoker.engine.model import TIME, DeviceState, Plan, Request, Reservation, RunningJob, Snapshot
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
    order_of,
    pool_of,
)
from stoker.engine.policy.eligible import is_eligible
from stoker.engine.policy.host_room import HostRoom
from stoker.engine.policy.host_share import CPU_SLOTS
from stoker.engine.policy.host_words import amount_words, declared_words, free_words
from stoker.engine.policy.placement import amount_of, likely_end_of_running
from stoker.record import Record
from stoker.text.durations import format_duration
from stoker.text.plurals import plural, plural_word
from stoker.text.sizes import format_size

_OPEN = DeviceState()


class Place(Record):
    """The number of jobs that come before a job in the order of the policy."""

    ahead: int
    is_exact: bool = True

    def __str__(self) -> str:
        least = "" if self.is_exact else "at least "
        return f"{least}{plural(self.ahead, 'job')} in front of it"


def places(snapshot: Snapshot, cut: Collection[int] = ()) -> dict[int, Place]:
    """Return the place of every waiting job by its id.

    `cut`: request groups that have more waiting jobs than the snapshot shows.
    """
    found = {}
    last = {job.request_group: job.id for job in snapshot.waiting if job.request_group in cut}
    is_exact = True
    for ahead, job in enumerate(order_of(snapshot)):
        found[job.id] = Place(ahead, is_exact)
        is_exact = is_exact and last.get(job.request_group) != job.id
    return found


def explain_ready(job: AnyJob, snapshot: Snapshot, plan: Plan, place: Place) -> list[str]:
    """Return the reasons why a ready job waits; empty if it starts now."""
    return with_place(*reasons_of(job, snapshot, plan), place)


def with_place(
    sentences: list[str], waits_for_others: bool, place: Place, *, is_first: bool = False
) -> list[str]:
    """Add the place to the reasons of a job that waits for others; `is_first`: before them."""
    if not waits_for_others or not place.ahead:
        return list(sentences)
    return [str(place), *sentences] if is_first else [*sentences, str(place)]


def reasons_of(job: AnyJob, snapshot: Snapshot, plan: Plan) -> tuple[list[str], bool]:
    """Return the reasons why a job waits, and whether the jobs before it are one of them.

    A job that the daemon does not consider yet waits for the jobs before it in its request group,
    so it has their reason.
    """
    if any(start.job == job.id for start in plan.starts):
        return [], False
    reason = plan.waits.get(job.id)
    if reason is None:
        group = [other.id for other in snapshot.waiting if other.request_group == job.request_group]
        reason = next((plan.waits[id] for id in group if id in plan.waits), None)
        if reason is None:
            return [f"it needs {needs(job.request)}"], True
    if reason == DRAINING:
        return ["the queue is drained: no job starts until `stoker daemon resume`"], False
    if reason == IMPOSSIBLE:
        host = host_room_of(snapshot)
        claim = host.claim_of(job.request)
        if not host.is_possible(claim):
            return [
                _too_large(name, amount, host)
                for name, amount in claim.items()
                if amount > host.totals.get(name, 0) and name != CPU_SLOTS
            ], False
        fitting = sum(1 for device in snapshot.devices if is_eligible(job.request, device))
        has = f"this host has {len(snapshot.devices)}"
        if len(snapshot.devices) != fitting:
            has += f", of which {fitting} qualify"
        return [f"it needs {needs(job.request)}, and {has}"], False
    if reason == GROUP_LIMIT:
        most = (snapshot.limits or {}).get(job.fair_share_group, 0)
        return [f"{job.fair_share_group} already has {most} running, which is its limit"], False
    if reason == ARRAY_LIMIT:
        return [_array_limit(job, snapshot, plan)], False
    if reason == NO_CPU_SLOT:
        busy = [running.id for running in snapshot.running if not running.request.gpus]
        busy += [start.job for start in plan.starts if not start.devices]
        taken = f" are used by {_jobs(busy)}" if busy else " are in use"
        return [f"all {snapshot.cpu_slots} CPU slots{taken}"], True
    if reason == NO_HOST_ROOM:
        return _lacking(job, snapshot, plan), True
    if reason == HOST_RESERVED:
        return [_kept_room(job, snapshot, plan)], True
    if reason == VACATING and job.kept:
        return [f"it needs {needs(job.request)}", *_vacated(job, snapshot)], False
    if reason == RESERVED and plan.reservation is not None:
        return [_kept(plan.reservation, snapshot)], True
    return [f"it needs {needs(job.request)}", *_holders(job.request, snapshot, plan)], True


def needs(request: Request, *, is_reserved: bool = False) -> str:
    """Return a request in words. `is_reserved`: its memory as a reservation, not as a condition."""
    if not request.gpus:
        return " and ".join(declared_words(request)) or "a CPU slot"
    words = plural(request.gpus, "GPU")
    if request.memory is not None and is_reserved:
        each = " on each" if request.gpus > 1 else ""
        words += f", {format_size(request.memory)} reserved{each}"
    elif request.memory is not None:
        words += f" with {format_size(request.memory)} free"
    elif request.is_auto:
        words += " (no memory estimate yet)"
    if request.exclusive:
        words += ", whole"
    if request.share:
        words += ", shared by time slices" if request.share == TIME else ", shared with MPS"
    if request.model is not None:
        words += f", {request.model}"
    if request.min_memory is not None:
        words += f", with {format_size(request.min_memory)} or more"
    if request.ids:
        words += f" among {','.join(request.ids)}"
    if not is_reserved:
        words += "".join(f" and {declared}" for declared in declared_words(request))
    return words


def _array_limit(job: AnyJob, snapshot: Snapshot, plan: Plan) -> str:
    most = (snapshot.limits or {}).get(array_key(job.request), 0)
    array = job.request.array
    busy = [one.id for one in snapshot.running if one.request.array == array]
    starting = {start.job for start in plan.starts}
    busy += [
        one.id for one in snapshot.waiting if one.id in starting and one.request.array == array
    ]
    run = f": {_jobs(busy)} {'run' if len(busy) > 1 else 'runs'}" if busy else ""
    return f"the array runs at most {plural(most, 'job')} at once{run}"


def _too_large(name: str, amount: int, host: HostRoom) -> str:
    total = host.totals.get(name, 0)
    return f"it needs {amount_words(name, amount)}, and this host has {amount_words(name, total)}"


def room_after(snapshot: Snapshot, plan: Plan) -> HostRoom:
    """Return the room on the host after the starts of the plan."""
    host = host_room_of(snapshot)
    jobs = {job.id: job for job in snapshot.waiting}
    for start in plan.starts:
        host.take(host.claim_of(jobs[start.job].request), None, float("inf"))
    return host


def _lacking(job: AnyJob, snapshot: Snapshot, plan: Plan) -> list[str]:
    """`it waits for 8 cores; 3 of 16 are free`, for each resource that lacks; then who has it."""
    host = room_after(snapshot, plan)
    claim = host.claim_of(job.request)
    # A job of the same group that the daemon does not consider yet has the reason of the others.
    names = host.lacks(claim) or list(claim)
    sentences = [
        f"it waits for {amount_words(name, claim[name])}; {free_words(name, host)}"
        for name in names
    ]
    holders = [one for one in snapshot.running if not names or host.holds(one, names)]
    if holders:
        use = "use" if len(holders) > 1 else "uses"
        sentences.append(
            f"{_jobs([one.id for one in holders])} {use} the others{_until(holders, snapshot)}"
        )
    return sentences


def _kept_room(job: AnyJob, snapshot: Snapshot, plan: Plan) -> str:
    host = room_after(snapshot, plan)
    claim = host.claim_of(job.request)
    held = plan.host_reservation or plan.reservation
    names = [name for name in claim if name != CPU_SLOTS] or list(claim)
    needed = " and ".join(amount_words(name, claim[name]) for name in names)
    sentence = f"it needs {needed}; {free_words(names[0], host)}"
    if held is None:
        return sentence
    sentence += f", reserved for job {held.job}, which comes first"
    if held.at is not None and held.at > snapshot.now:
        sentence += f", likely in {format_duration(held.at - snapshot.now)}"
    return sentence


def _vacated(job: AnyJob, snapshot: Snapshot) -> list[str]:
    """Return which jobs vacate the devices that are kept for a job."""
    visible = {device.number: device.visible for device in snapshot.devices}
    sentences = []
    for number in sorted(job.kept):
        leaving = [one.id for one in snapshot.running if one.gives_way and number in one.devices]
        by = f"{_jobs(leaving)} {'is' if len(leaving) == 1 else 'are'} asked to vacate it"
        state = f": {by}" if leaving else ""
        sentences.append(f"GPU {visible.get(number, number)} is kept for it{state}")
    return sentences


def _kept(held: Reservation, snapshot: Snapshot) -> str:
    visible = {device.number: device.visible for device in snapshot.devices}
    numbers = ", ".join(visible[number] for number in sorted(held.devices))
    gpus = f"{plural_word(len(held.devices), 'GPU')} {numbers}"
    are = "are" if len(held.devices) > 1 else "is"
    sentence = f"{gpus} {are} reserved for job {held.job}, which comes first"
    if held.at is None or held.at <= snapshot.now:
        return sentence
    return f"{sentence}, likely in {format_duration(held.at - snapshot.now)}"


def _holders(request: Request, snapshot: Snapshot, plan: Plan) -> list[str]:
    """Return what occupies each device that qualifies, and until when if that is known."""
    running: dict[int, list[RunningJob]] = {}
    for job in snapshot.running:
        for number in job.devices:
            running.setdefault(number, []).append(job)
    starting: dict[int, list[int]] = {}
    for start in plan.starts:
        for number in start.devices:
            starting.setdefault(number, []).append(start.job)
    pool = pool_of(snapshot)
    sentences = []
    for device in snapshot.devices:
        if not is_eligible(request, device):
            continue
        state = (snapshot.states or {}).get(device.number, _OPEN)
        jobs, next_jobs = running.get(device.number, []), starting.get(device.number, [])
        is_open = state._replace(mps_problem=None) == _OPEN
        words = []
        if state.closed_reason is not None:
            words.append(
                f"is {state.closed_reason}"
                if " " not in state.closed_reason
                else state.closed_reason
            )
        if jobs:
            words.append(f"runs {_jobs([job.id for job in jobs])}{_until(jobs, snapshot)}")
        for other in snapshot.waiting:
            if device.number in other.kept and plan.waits.get(other.id) == VACATING:
                words.append(f"is kept for job {other.id}")
        if next_jobs:
            words.append(f"starts {_jobs(next_jobs)} now")
        if state.note is not None:
            words.append(f"is used by others: {state.note}")
        room = pool.rooms[device.number]
        if request.profile and pool.gains_nothing(request, room):
            words.append("would not do more work with another job of this kind")
        conflict = room.conflict(room.mode_of(request))
        if conflict is not None:
            words.append(conflict)
        if request.memory is not None and 0 < room.free < amount_of(request, device):
            words.append(f"has {format_size(room.free)} free")
        elif conflict is None and len(jobs) + len(next_jobs) < device.slots and is_open:
            words.append("has room" if words else "is free")
        sentences.append(f"GPU {device.visible} {' and '.join(words) or 'is free'}")
    return sentences


def _until(jobs: list[RunningJob], snapshot: Snapshot) -> str:
    now, estimates = snapshot.now, snapshot.estimates
    limits = [job.ends_by for job in jobs if job.ends_by is not None]
    if limits:
        return f" for at most {format_duration(min(limits) - now)} more"
    likely = [
        likely_end_of_running(job, now, estimates) for job in jobs if estimates.of(job.profile)
    ]
    return f", likely for {format_duration(min(likely) - now)} more" if likely else ""


def _jobs(ids: list[int]) -> str:
    shown = [str(id) for id in ids[:5]] + (["..."] if len(ids) > 5 else [])
    return f"{plural_word(len(ids), 'job')} {', '.join(shown)}"
