"""Jobs of one unknown command profile that share a GPU while one of them is being measured.

The first of them that uses the GPU is the *leader*. The others (the *followers*) start at once, so
that they load their libraries meanwhile, but they are paused as soon as they use the GPU. When the
memory of the leader is known, the followers for which there is room continue, and the others are
stopped and return to the queue.

`advance_group` makes these decisions from one sample, without any state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from stoker.core.profiles.live_memory import LiveEstimate
from stoker.core.record import Record

# The leader and seven followers.
MAX_MEMBERS = 8
# A follower that is paused for longer returns to the queue.
MAX_PAUSE_SECONDS = 60.0


class Member(Record):
    """A job of the group. Times are monotonic."""

    attempt: int
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
    is_resolved: bool = False  # each remaining member has its own claim from now on


def advance_group(
    members: Sequence[Member],
    estimate: LiveEstimate | None,
    room: int,
    now: float,
    *,
    is_full: bool = False,
    is_saturated: bool = False,
) -> GroupStep:
    """Return the next step of a group.

    `estimate`: of the leader, None while it is being measured. `room`: bytes that the group may
    use. `is_full`: the GPU is running out of memory. `is_saturated`: the leader alone uses all
    of the GPU's compute power, so that no other job would gain from it.
    """
    live = [one for one in members if not one.is_stopping]
    leader = leader_of(live)
    if leader is None and estimate is not None:  # known from a job that has ended
        leader = min(live, key=lambda one: one.attempt, default=None)
    if leader is None:
        return GroupStep(None, is_resolved=estimate is not None)
    followers = sorted(
        (one for one in live if one.attempt != leader.attempt),
        key=lambda one: (not one.is_released, one.seen_at is None, one.seen_at or 0, one.attempt),
    )
    if estimate is None:
        fitting: list[Member] = []
        is_decided = False
    else:
        count = 1 if is_saturated else max(1, room // estimate.claim)
        fitting = followers[: count - 1]
        is_decided = estimate.is_final or is_saturated or len(fitting) == len(followers)
    rest = [one for one in followers if one not in fitting and not one.is_released]
    requeue = [one for one in rest if is_decided or _is_overdue(one, now)]
    if is_full and not requeue and followers:
        requeue = [max(rest or followers, key=lambda one: one.attempt)]
    gone = {one.attempt for one in requeue}
    released = [one for one in (leader, *fitting) if one.attempt not in gone]
    return GroupStep(
        leader.attempt,
        tuple(
            one.attempt
            for one in rest
            if one.seen_at is not None and one.paused_since is None and one.attempt not in gone
        ),
        tuple(
            one.attempt
            for one in released
            if one.paused_since is not None
            or (one.attempt != leader.attempt and not one.is_released)
        ),
        tuple(sorted(gone)),
        is_decided,
    )


def leader_of(members: Sequence[Member]) -> Member | None:
    """Return the member that is measured; None while none uses the GPU.

    Of those that were seen first in the same sample, it is the one with the most memory.
    """
    seen = [one for one in members if one.seen_at is not None and not one.is_stopping]
    return min(
        seen, key=lambda one: (one.paused_since is not None, one.seen_at, -one.used, one.attempt),
        default=None,
    )  # fmt: skip


def _is_overdue(member: Member, now: float) -> bool:
    return member.paused_since is not None and now - member.paused_since > MAX_PAUSE_SECONDS
