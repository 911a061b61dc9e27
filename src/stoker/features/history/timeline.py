"""The timeline of all GPUs, past and forecast, for the web UI.

Blocks, sums and words come from features/history/timeline_blocks.py and
features/history/gpu_time.py, which `stoker gpus --history` uses, too; the forecast is that of
`stoker why`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from stoker.client.views.why import QueueView
from stoker.engine.daemon.status import daemon_pid
from stoker.engine.model import SIMULATED
from stoker.engine.policy.forecast import LikelyRun
from stoker.engine.store.database import Database
from stoker.engine.store.job_labels import job_labels
from stoker.errors import UsageError
from stoker.features.history.gpu_history import GpuHistory, RecordedGpu, recorded_gpus
from stoker.features.history.gpu_time import Block, cover, sum_of
from stoker.features.history.timeline_blocks import (
    Bar,
    Run,
    bars,
    forecast_bars,
    job_in,
    merge_short,
    words_of,
)
from stoker.settings import Settings

MAX_SECONDS = 31 * 86400.0  # in one answer
MAX_AHEAD_SECONDS = 7 * 86400.0  # of the forecast
_MAX_GPUS = 256
_STEPS = (60, 400)  # per GPU: a block is at least this part of the range
_ALL_STEPS = 8000  # for all GPUs together


def _check_range(since: float, until: float, now: float) -> None:
    """Raises UsageError for a range that cannot be shown."""
    if not since < until:
        raise UsageError(
            f"the time range ends ({until:.0f}) before it begins ({since:.0f})",
            "give `from` and `to` in seconds since 1970, `from` first",
        )
    if until - since > MAX_SECONDS:
        raise UsageError("a time range can have 31 days at most", "choose a shorter time range")
    if until > now + MAX_AHEAD_SECONDS:
        raise UsageError("a forecast can be for 7 days at most", "choose an earlier end")


def timeline_json(db: Database, settings: Settings, since: float, until: float) -> dict[str, Any]:
    """What every GPU did from `since` to `until`, and the forecast after now.

    Raises UsageError for a range that is empty or too long.
    """
    now = time.time()
    _check_range(since, until, now)
    recorded = recorded_gpus(db, settings, since, now, until)
    left_off = max(0, len(recorded) - _MAX_GPUS)
    recorded = recorded[:_MAX_GPUS]
    least, most = _STEPS
    steps = max(least, min(most, _ALL_STEPS // max(1, len(recorded))))
    step = (until - since) / steps
    is_running = daemon_pid(settings.state_dir) is not None
    runs = QueueView(db, settings).runs() if until > now and is_running else []
    gpus = []
    shown: list[Bar] = []
    for gpu in recorded:
        blocks = cover(gpu.intervals, since, min(until, now)) if since < now else []
        past = bars(merge_short(blocks, step))
        ahead = _forecast(gpu, past, runs, now, since, until)
        shown += [*past, *ahead]
        gpus.append(_gpu_json(gpu, blocks, [*past, *ahead]))
    return {
        "from": round(since, 3),
        "to": round(until, 3),
        "now": round(now, 3),
        "step": round(step, 3),
        "gpus": gpus,
        "left_off": left_off,
        "jobs": _jobs_json(db, shown),
        "forecast": {
            "words": "there is no forecast while the daemon is not running"
            if until > now and not is_running
            else ""
        },
    }


def _forecast(
    gpu: RecordedGpu,
    past: list[Bar],
    runs: Iterable[LikelyRun],
    now: float,
    since: float,
    until: float,
) -> list[Bar]:
    lane_of = {bar.job: bar.lane for bar in past if bar.job is not None and bar.until >= now - 1}
    mine = [
        Run(run.job, now + run.start, None if run.end is None else now + run.end)
        for run in runs
        if gpu.number in run.devices
    ]
    drawn = forecast_bars(mine, now, until, lane_of)
    return [bar for bar in drawn if bar.until > since]


def _gpu_json(gpu: RecordedGpu, blocks: list[Block], shown: list[Bar]) -> dict[str, Any]:
    history = GpuHistory(gpu.number, gpu.visible, gpu.uuid, sum_of(blocks))
    return {
        **history.as_json(),
        "simulated": gpu.uuid.startswith(SIMULATED),
        "blocks": [_bar_json(bar) for bar in shown],
    }


def _bar_json(bar: Bar) -> dict[str, Any]:
    return {
        "from": round(bar.since, 2),
        "to": round(bar.until, 2),
        "kind": bar.look,
        "lane": bar.lane,
        "lanes": bar.lanes,
        "job": bar.job,
        "about": None if bar.job is not None else job_in(bar.reason),
        "jobs": list(bar.others),
        "count": bar.short_jobs,
        "words": words_of(bar),
        "forecast": bar.is_forecast,
        "end_known": not bar.is_open,
    }


def _jobs_json(db: Database, shown: list[Bar]) -> dict[str, dict[str, Any]]:
    ids = {id for bar in shown for id in (bar.job, *bar.others, job_in(bar.reason)) if id}
    return {
        str(id): {"title": label.title, "state": label.state}
        for id, label in job_labels(db, sorted(ids)).items()
    }
