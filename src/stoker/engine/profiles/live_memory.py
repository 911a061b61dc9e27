"""Estimates of GPU memory from a job that is still running.

A job's memory is *steady* since its last growth of more than 2%. Programs often create their CUDA
context first and load data for a while, so steadiness counts only once the GPU has computed.

estimate     steady for                                 bytes to reserve for such a job
-----------  -----------------------------------------  -------------------------------
none yet     less than PROVISIONAL_SECONDS              -
provisional  PROVISIONAL_SECONDS; UNSURE_SECONDS if     2 times the memory
             others use the GPU and the driver does
             not say which process computes
final        FINAL_SECONDS; IDLE_SECONDS if the GPU     the peak plus 10% (`budget`)
             never computed
"""

from __future__ import annotations

from stoker.engine.profiles.gpu_memory import budget
from stoker.record import Record

PROVISIONAL_SECONDS = 1.0
UNSURE_SECONDS = 5.0
FINAL_SECONDS = 10.0
IDLE_SECONDS = 30.0
_PROVISIONAL_FACTOR = 2
_GROWTH = 0.02
# Utilization of a GPU is reported with this delay, so earlier values are about other processes.
_UTILIZATION_LAG_SECONDS = 0.5
_GRAIN = 256 << 20


class MemoryTrack(Record):
    """The GPU memory of one attempt over time. Times are monotonic."""

    seen_at: float  # when it was first seen on its GPU
    peak: int
    level: int  # its memory when it grew last
    steady_since: float
    has_computed: bool = False
    may_have_computed: bool = False  # the GPU computed, but for which process is not known


class LiveEstimate(Record):
    """The memory to reserve for each job of a command profile, from one that is running."""

    peak: int
    is_final: bool

    @property
    def claim(self) -> int:
        return budget(self.peak) if self.is_final else budget_provisionally(self.peak)


def budget_provisionally(peak: int) -> int:
    """Return the bytes to reserve for a job whose memory has been steady for a moment only."""
    return rounded_up(_PROVISIONAL_FACTOR * peak)


def rounded_up(memory: int) -> int:
    """Return the bytes to reserve for a job that uses more than was reserved for it."""
    return -(-memory // _GRAIN) * _GRAIN


def update_track(
    before: MemoryTrack | None,
    used: int,
    at: float,
    computes: bool | None,
    read_at: float | None = None,
) -> MemoryTrack:
    """Return the track after one more sample.

    `computes`: whether the job computed at `read_at` (None: at `at`); None if that is not known.
    """
    if before is None:
        return MemoryTrack(at, used, used, at)
    is_own = (at if read_at is None else read_at) >= before.seen_at + _UTILIZATION_LAG_SECONDS
    has_grown = used > before.level * (1 + _GROWTH)
    return MemoryTrack(
        before.seen_at,
        max(before.peak, used),
        used if has_grown else before.level,
        at if has_grown else before.steady_since,
        before.has_computed or (is_own and computes is True),
        before.may_have_computed or (is_own and computes is None),
    )


def live_estimate(track: MemoryTrack, now: float) -> LiveEstimate | None:
    """Return the estimate from the track of one attempt; None if it is too early."""
    steady = now - track.steady_since
    if steady >= (FINAL_SECONDS if track.has_computed else IDLE_SECONDS):
        return LiveEstimate(track.peak, True)
    least = PROVISIONAL_SECONDS if track.has_computed else UNSURE_SECONDS
    if (track.has_computed or track.may_have_computed) and steady >= least:
        return LiveEstimate(track.peak, False)
    return None
