"""Estimates of GPU memory from running jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.profiles.gpu_memory import budget
from stoker.engine.profiles.live_memory import (
    FINAL_SECONDS,
    IDLE_SECONDS,
    PROVISIONAL_SECONDS,
    UNSURE_SECONDS,
    LiveEstimate,
    MemoryTrack,
    live_estimate,
    rounded_up,
    update_track,
)

GIB = 1 << 30


def _track(*samples: tuple[float, int], computes: bool | None = True) -> MemoryTrack:
    track = None
    for at, used in samples:
        track = update_track(track, used, at, computes)
    assert track is not None
    return track


def test_steady_job_has_a_provisional_estimate_first_and_a_final_one_later() -> None:
    track = _track((0.0, 8 * GIB), (1.0, 8 * GIB))
    assert live_estimate(track, PROVISIONAL_SECONDS / 2) is None
    provisional = live_estimate(track, PROVISIONAL_SECONDS)
    assert provisional == LiveEstimate(8 * GIB, False)
    assert provisional.claim == 16 * GIB
    final = live_estimate(track, FINAL_SECONDS)
    assert final == LiveEstimate(8 * GIB, True)
    assert final.claim == budget(8 * GIB)


def test_growth_starts_the_measurement_again() -> None:
    track = _track((0.0, 8 * GIB), (9.0, 10 * GIB))
    assert live_estimate(track, 9.5) is None
    assert live_estimate(track, 10.0) == LiveEstimate(10 * GIB, False)


def test_growth_in_small_steps_is_growth() -> None:
    samples = [(0.1 * n, GIB + n * (GIB // 100)) for n in range(100)]
    assert live_estimate(_track(*samples), 9.95) is None


def test_job_that_has_not_computed_is_not_measured_for_long() -> None:
    track = _track((0.0, GIB), (5.0, GIB), computes=False)
    assert live_estimate(track, FINAL_SECONDS) is None
    assert live_estimate(track, IDLE_SECONDS) == LiveEstimate(GIB, True)


def test_load_of_the_job_before_does_not_count_as_computing() -> None:
    track = update_track(_track((0.0, GIB)), GIB, 0.3, True)
    assert not track.has_computed
    assert not update_track(track, GIB, 5.0, True, read_at=0.3).has_computed
    assert update_track(track, GIB, 0.6, True).has_computed


def test_job_that_may_have_computed_is_measured_for_longer() -> None:
    track = _track((0.0, GIB), (1.0, GIB), computes=None)
    assert live_estimate(track, PROVISIONAL_SECONDS) is None
    assert live_estimate(track, UNSURE_SECONDS) == LiveEstimate(GIB, False)
    assert live_estimate(track, FINAL_SECONDS) == LiveEstimate(GIB, False)
    assert live_estimate(track, IDLE_SECONDS) == LiveEstimate(GIB, True)


@given(st.lists(st.integers(1, 200 * GIB), min_size=1, max_size=50))
def test_estimate_is_never_below_the_peak(uses: list[int]) -> None:
    track = _track(*((0.1 * n, used) for n, used in enumerate(uses)))
    assert track.peak == max(uses)
    for later in (PROVISIONAL_SECONDS, FINAL_SECONDS, IDLE_SECONDS):
        estimate = live_estimate(track, 0.1 * len(uses) + later)
        assert estimate is None or estimate.claim >= track.peak
    assert rounded_up(track.peak) >= track.peak
