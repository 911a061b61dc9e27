"""Jobs of unknown command profiles that share a GPU while one of them is being measured.

The first of them that uses the GPU is the *leader*. The others (the *followers*) start at once, so
that they load their libraries meanwhile, but they are paused as soon as they use the GPU. When the
memory of the leader is known, the followers of its profile for which there is room continue, and
the others of its profile are stopped and return to the queue. Then the next profile has a leader.

`advance_group` makes these decisions from one sample, without any state of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoker.engine.profiles.live_memory import LiveEstimate
from stoker.record import Record

# The leader and its followers. A follower that is paused holds about 600 MiB (its CUDA context), so
# small GPUs have fewer.
MAX_MEMBERS = 16
_BYTES_PER_MEMBER = 4 << 30
# A job that is being measured starts beside others only if this part of its slot is free.
LEAST_PART = 0.5
# A follower that is paused for longer returns to the queue.
MAX_PAUSE_SECONDS = 60.0


class Member(Record):
    """A job of the group. Times are monotonic."""

    attempt: int
    profile: int = 0
    seen_at: float | None = None  # when it was first seen on the GPU
    used: int = 0  # bytes
    paused_since: float | None = None
    is_released: bool = False  # it was found to fit, and is not paused again
    is_stopping: bool = False


class GroupStep(Record):
    """What to do with the members of a group."""

    leader: int | None
    pause: tuple[int, ...] = ()
    release: tuple[int, ...] = ()  # continue those that are paused
    requeue: tuple[int, ...] = ()
    resolved: tuple[int, ...] = ()  # profiles whose remaining members have their own claims now


def advance_group(
    members: Sequence[Member],
    estimates: Mapping[int, LiveEstimate],
    room: int,
    slot: int,
    now: float,
    *,
    is_full: bool = False,
    is_saturated: bool = False,
) -> GroupStep:
    """Return the next step of a group.

    `estimates`: by profile, of those that are not being measured any more. `room`: bytes that the
    group may use. `slot`: bytes of the GPU's slot. `is_full`: the GPU is running out of memory.
    `is_saturated`: the leader alone uses all of the GPU's compute power, so that no other job
    would gain from it.
    """
    live = sorted((one for one in members if not one.is_stopping), key=_order)
    resolved: list[int] = []
    running: list[Member] = []
    waiting: list[Member] = []
    leaving: list[Member] = []
    leader = leader_of(live)
    profiles = dict.fromkeys(one.profile for one in (*([leader] if leader else []), *live))
    for profile in (one for one in profiles if one in estimates):
        estimate = estimates[profile]
        some = [one for one in live if one.profile == profile]
        leader = leader or some[0]
        some.sort(key=lambda one: one is not leader)
        count = room // estimate.claim if not is_saturated else 0
        fitting = some[: max(count, some[0] is leader)]
        others = [one for one in some[len(fitting) :] if not one.is_released]
        room -= estimate.claim * len(fitting)
        running += fitting
        if estimate.is_final or is_saturated or len(fitting) == len(some):
            resolved.append(profile)
            leaving += others
        else:
            waiting += others
    unknown = [one for one in live if one.profile not in estimates]
    if unknown:
        measured = leader if leader in unknown else None
        if measured is None and not is_saturated and room >= slot * LEAST_PART:
            measured = leader_of(unknown)
        leader = measured or leader
        running += [measured] if measured else []
        rest = [one for one in unknown if one is not measured and not one.is_released]
        if is_saturated:
            leaving += rest
        else:
            waiting += rest
    if leader is None:
        return GroupStep(None, resolved=tuple(resolved))
    leaving += [one for one in waiting if _is_overdue(one, now)]
    if is_full and not leaving:
        followers = [one for one in live if one is not leader]
        leaving = sorted(waiting or followers, key=lambda one: one.attempt)[-1:]
    gone = {one.attempt for one in leaving}
    return GroupStep(
        leader.attempt,
        tuple(
            one.attempt
            for one in waiting
            if one.seen_at is not None and one.paused_since is None and one.attempt not in gone
        ),
        tuple(
            one.attempt
            for one in running
            if one.attempt not in gone
            and (one.paused_since is not None or (one is not leader and not one.is_released))
        ),
        tuple(sorted(gone)),
        tuple(resolved),
    )


def most_members(memory: int) -> int:
    """Return how many jobs may be in a group on a GPU with this memory."""
    return max(2, min(MAX_MEMBERS, memory // _BYTES_PER_MEMBER))


def leader_of(members: Sequence[Member]) -> Member | None:
    """Return the member that is measured; None while none uses the GPU.

    Of those that were seen first in the same sample, it is the one with the most memory.
    """
    seen = [one for one in members if one.seen_at is not None and not one.is_stopping]
    return min(
        seen,
        key=lambda one: (one.paused_since is not None, one.seen_at, -one.used, one.attempt),
        default=None,
    )


def _order(member: Member) -> tuple[bool, bool, float, int]:
    """Members in the order in which they get room."""
    is_unseen = member.seen_at is None
    return not member.is_released, is_unseen, member.seen_at or 0.0, member.attempt


def _is_overdue(member: Member, now: float) -> bool:
    return member.paused_since is not None and now - member.paused_since > MAX_PAUSE_SECONDS
