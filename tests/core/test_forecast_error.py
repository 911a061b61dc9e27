"""The past error of forecasts."""

from __future__ import annotations

import pytest

from stoker.core.policy.forecast_error import (
    NO_ERRORS,
    Errors,
    PastError,
    StartForecast,
    add_error,
    from_text,
    past_error,
    to_text,
    typical_error,
)


def errors_of(*errors: float, horizon: float = 60.0) -> Errors:
    found = NO_ERRORS
    for error in errors:
        found = add_error(found, horizon, error)
    return found


def test_few_forecasts_have_no_typical_error() -> None:
    assert typical_error(NO_ERRORS, 60.0) is None
    assert typical_error(errors_of(1, 2, 3, 4), 60.0) is None
    assert typical_error(errors_of(1, 2, 3, 4, 5), 60.0) is not None


def test_three_of_four_forecasts_are_within_the_typical_error() -> None:
    found = typical_error(errors_of(*range(1, 41)), 60.0)
    assert found is not None
    assert sum(error <= found for error in range(1, 41)) in (30, 31)


def test_early_and_late_starts_are_errors_alike() -> None:
    assert typical_error(errors_of(-30, 30, -30, 30, -30), 60.0) == 30


def test_one_outlier_does_not_change_the_typical_error() -> None:
    assert typical_error(errors_of(10, 10, 10, 10, 10, 10, 86400), 60.0) == 10


@pytest.mark.parametrize("horizon", [0.0, 599.0, 600.0, 3600.0, 21600.0, 1e9])
def test_errors_count_for_forecasts_with_a_similar_horizon(horizon: float) -> None:
    known = errors_of(*[5.0] * 10, horizon=horizon)
    shown = [other for other in (0.0, 700.0, 4000.0, 30000.0) if typical_error(known, other)]
    assert len(shown) == 1


def test_old_errors_are_dropped() -> None:
    found = errors_of(*[1000.0] * 100, *[10.0] * 40)
    assert typical_error(found, 60.0) == 10
    assert len(to_text(found)) < 1000


def test_errors_survive_as_text_and_damaged_text_has_none() -> None:
    found = errors_of(1.25, 2.0, horizon=7200.0)
    assert from_text(to_text(found)) == found
    for text in ("", "1;2", "a;b;c;d", "1,2;;;;;"):
        assert from_text(text) == NO_ERRORS


def test_forecast_in_words() -> None:
    assert StartForecast(720.0).words() == "in 12m00s"
    assert StartForecast(720.0).error_words() == ""
    known = StartForecast(720.0, 240.0)
    assert (known.words(), known.error_words()) == (
        "in 12m00s ±4m00s",
        " (usually right to within 4m00s)",
    )


def test_past_error_is_the_mean_of_late_and_early_starts() -> None:
    assert past_error(NO_ERRORS) == PastError(0, 0.0)
    found = add_error(errors_of(300.0, -60.0), 7200.0, 480.0)
    assert past_error(from_text(to_text(found))) == PastError(3, 240.0)
