"""NaN and the infinities are refused wherever a sweep takes a number."""

from __future__ import annotations

import pytest

from stoker.errors import UsageError
from stoker.features.sweeps.files.toml_file import from_table
from stoker.features.sweeps.spec.spec import Metric, make_metric, make_spec

BAD = [float("nan"), float("inf"), float("-inf")]
SWEEP = {"command": "echo {x}", "params": {"x": [1]}}


@pytest.mark.parametrize("number", BAD)
def test_target_of_a_metric_must_be_finite(number: float) -> None:
    with pytest.raises(UsageError, match="the target of `loss` is"):
        make_metric("loss", "min", number)
    with pytest.raises(UsageError, match="the target of `loss` is"):
        from_table({**SWEEP, "metric": {"name": "loss", "target": number}}, ".")
    good = from_table(SWEEP, ".")
    with pytest.raises(UsageError, match="write a finite number"):
        make_spec(good.template, good.space, metric=Metric("loss", "min", number))


@pytest.mark.parametrize("number", BAD)
@pytest.mark.parametrize(
    "extra",
    [
        lambda bad: {"metric": "y", "stop": {"kind": "percentile", "percentile": bad}},
        lambda bad: {"metric": "y", "stop": {"kind": "median", "kill_after": bad}},
        lambda bad: {"params": {"x": {"min": 0.0, "max": bad}}},
        lambda bad: {"params": {"x": [bad]}},
        lambda bad: {"trials": bad},
        lambda bad: {"resources": {"time_limit": bad}},
    ],
)
def test_numbers_of_a_sweep_file_must_be_finite(number: float, extra: object) -> None:
    with pytest.raises(UsageError):
        from_table({**SWEEP, **extra(number)}, ".")  # type: ignore[operator]
