"""What each GPU does: which jobs run on it, or why it is idle although jobs wait, in words.

The reasons come from the snapshot and the plan of the decision that started no job there.

>>> from stoker.engine.model import Request, Reservation, WaitingJob
>>> devices = (Device(0, "0"), Device(1, "1"))
>>> plan = Plan((), Reservation(25, (0, 1), None), {25: "no_device"})
>>> waiting = (WaitingJob(25, 0, Request(gpus=2)),)
>>> for activity in gpu_activities(devices, {}, waiting, plan, {1: (24,)}).values():
...     print(activity)
GpuActivity(kind='waiting', jobs=(), reason='reserved for job 25')
GpuActivity(kind='busy', jobs=(24,), reason='')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stoker.engine.model import Device, DeviceState, Plan
from stoker.engine.policy.decide import (
    ARRAY_LIMIT,
    GROUP_LIMIT,
    HOST_RESERVED,
    IMPOSSIBLE,
    NO_CPU_SLOT,
    NO_HOST_ROOM,
    AnyJob,
)
from stoker.engine.policy.eligible import is_eligible
from stoker.engine.policy.placement import amount_of, capacity
from stoker.record import Record
from stoker.text.plurals import plural

BUSY = "busy"  # jobs of this queue run on it
OTHERS = "others"  # other processes compute on it, and no job of this queue waits
IDLE = "idle"  # no job waits that needs a GPU
WAITING = "waiting"  # it is idle although jobs wait

NO_PLAN = Plan((), None, {})
_OPEN = DeviceState()
_MAX_WORDS = 120  # of a reason that contains a message of the driver


class GpuActivity(Record):
    """What a GPU does.

    `reason`: why no job runs on it although jobs wait, for the kind `waiting`; why it is closed,
    for `idle`; who else uses it, for `others` and `busy`.
    """

    kind: str
    jobs: tuple[int, ...] = ()
    reason: str = ""


def gpu_activities(
    devices: Iterable[Device],
    states: Mapping[int, DeviceState],
    waiting: Iterable[AnyJob],
    plan: Plan,
    jobs: Mapping[int, tuple[int, ...]],
    *,
    obstacle: str | None = None,
    own_user: str = "",
) -> dict[int, GpuActivity]:
    """Return what each device does, by its number.

    `waiting` and `plan` are those of the last decision. `jobs`: the jobs that run on a device, also
    those that the plan has started. `obstacle`: why no job at all starts at the moment.
    """
    started = {start.job for start in plan.starts}
    need_gpus = {job.id: job for job in waiting if job.request.gpus and job.id not in started}
    found = {}
    for device in devices:
        running = jobs.get(device.number, ())
        state = states.get(device.number, _OPEN)
        if running:
            others = held_words(state, own_user) if state.has_other_processes else ""
            found[device.number] = GpuActivity(BUSY, running, others)
        elif need_gpus:
            reason = obstacle or _reason(device, state, need_gpus, plan, own_user)
            found[device.number] = GpuActivity(WAITING, reason=reason[:_MAX_WORDS])
        elif state.has_other_processes:
            found[device.number] = GpuActivity(OTHERS, reason=held_words(state, own_user))
        else:
            found[device.number] = GpuActivity(IDLE, reason=_closed(state))
    return found


def _reason(
    device: Device,
    state: DeviceState,
    waiting: Mapping[int, AnyJob],
    plan: Plan,
    own_user: str,
) -> str:
    """Why no waiting job runs on an idle device."""
    if state.closed_reason is not None:
        return closed_words(state.closed_reason, is_brief=state.closes_briefly)
    if state.has_other_processes:
        return held_words(state, own_user)
    for job in waiting.values():
        if device.number in job.kept:  # preemptible jobs have left it
            return f"reserved for job {job.id}"
    reserved = plan.reservation
    if reserved is not None and device.number in reserved.devices:
        return f"reserved for job {reserved.job}"
    reasons = [
        _reason_of_job(waiting[id], why, device, state, plan, own_user)
        for id, why in plan.waits.items()
        if id in waiting
    ]
    known = [reason for reason in reasons if reason is not None]
    if known:
        return known[0]
    if any(job.request.preemptible and job.id not in plan.waits for job in waiting.values()):
        return "kept for jobs that are not preemptible"
    return "the waiting jobs cannot run on it"


def _reason_of_job(
    job: AnyJob, why: str, device: Device, state: DeviceState, plan: Plan, own_user: str
) -> str | None:
    """Why this job does not run on an idle, open device; None if it could never run there."""
    request = job.request
    if why == IMPOSSIBLE or not is_eligible(request, device):
        return None
    if why == GROUP_LIMIT:
        return f"{job.fair_share_group} has as many running jobs as it may have"
    if why == ARRAY_LIMIT:
        return f"array {request.array} has as many running jobs as it may have"
    if why in (NO_HOST_ROOM, NO_CPU_SLOT):
        return "the waiting jobs need more cores or memory of the host"
    if why == HOST_RESERVED:
        owner = plan.host_reservation or plan.reservation
        whose = "another job" if owner is None else f"job {owner.job}"
        return f"cores or memory of the host are reserved for {whose}"
    free = max(0, device.memory - state.unreserved_bytes) if device.memory else capacity(device)
    if amount_of(request, device) > free or state.other_user is not None:
        return held_words(state, own_user)
    if request.gpus > 1:
        return f"the waiting jobs need {plural(request.gpus, 'GPU')}"
    return None


def held_words(state: DeviceState, own_user: str = "") -> str:
    """Who holds the memory of a device.

    >>> held_words(DeviceState(has_other_processes=True, other_users=("alice",)))
    'memory held by another user (alice)'
    """
    known = state.other_users or ((state.other_user,) if state.other_user else ())
    users = [user for user in known if user != own_user]
    if known and not users:
        return "memory held by a process that Stoker did not start"
    return "memory held by another user" + (f" ({', '.join(users)})" if users else "")


def _closed(state: DeviceState) -> str:
    """Why a device without work is closed; "" if it is open, or closed only for a moment."""
    if state.closed_reason is None or state.closes_briefly:
        return ""
    return closed_words(state.closed_reason, is_brief=False)[:_MAX_WORDS]


def closed_words(reason: str, *, is_brief: bool) -> str:
    """Why a device is closed, in the words of the history.

    >>> closed_words("in quarantine: the driver reported Xid 79", is_brief=False)
    'quarantined: the driver reported Xid 79'
    >>> closed_words("clearing", is_brief=True)
    'waiting for the driver'
    """
    if is_brief:  # until the driver confirms that the processes of the last job are gone
        return "waiting for the driver"
    if reason.startswith("in quarantine: "):
        return "quarantined: " + reason.removeprefix("in quarantine: ")
    return reason
