"""Recorded usage of GPUs and jobs over time; empty where usage recording is not installed."""

from __future__ import annotations

import importlib
import time
from typing import Any

from stoker.core.formats.finite_values import finite

_Series = dict[str, dict[str, object]]


def gpu_trace(state_dir: str, uuid: str, hours: float, points: int) -> _Series:
    source = _source()
    if source is None:
        return {}
    return _plain(source.gpu_trace(state_dir, uuid, time.time() - hours * 3600, points))


def job_trace(state_dir: str, job: int, points: int) -> _Series:
    source = _source()
    return {} if source is None else _plain(source.job_trace(state_dir, job, points))


def _source() -> Any:
    try:
        return importlib.import_module("stoker.usage.usage_charts")
    except ModuleNotFoundError:
        return None


def _plain(found: dict[str, Any]) -> _Series:
    return {
        name: {"unit": series.unit, "points": [finite(list(point)) for point in series.points]}
        for name, series in found.items()
    }
