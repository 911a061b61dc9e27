"""What a simulated GPU seems to do: numbers that follow its jobs, the same for the same time.

Only views read them. They are computed when a screen is shown, stored nowhere, and no decision
depends on them: estimates, profiles and the search for other processes never see them.

>>> job = JobOnGpu(id=7, since=0.0, memory=20 << 30)
>>> one = simulated_use("SIM-0", 80 << 30, [job], at=500.0)
>>> one == simulated_use("SIM-0", 80 << 30, [job], at=500.0)
True
>>> 0 < one.memory < 20 << 30, 0 < one.utilisation <= 100
(True, True)
>>> simulated_use("SIM-0", 80 << 30, [], at=500.0).utilisation
0
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stoker.core.record import Record

PREFIX = "SIM-"  # the start of the UUIDs of simulated GPUs
_LOADING_SECONDS = 20.0  # a job first reads its data
_WARMING_SECONDS = 180.0
_IDLE_WATTS, _BUSY_WATTS = 60.0, 400.0
_IDLE_CELSIUS, _BUSY_CELSIUS = 33.0, 74.0


class JobOnGpu(Record):
    """A job on a simulated GPU since `since`; `memory`: what it reserved there, in bytes."""

    id: int
    since: float
    memory: int | None


class SimulatedUse(Record):
    """Percent, bytes, watts, degrees Celsius. The fields are in the order of a `gpu` track."""

    utilisation: int
    memory: int
    power: float
    temperature: int


def is_simulated(uuid: str) -> bool:
    return uuid.startswith(PREFIX)


def simulated_use(uuid: str, total: int, jobs: Sequence[JobOnGpu], at: float) -> SimulatedUse:
    """What a GPU with `total` bytes of memory does at a time, with these jobs on it."""
    load = min(1.0, sum(_load(job, at) for job in jobs))
    memory = min(total, sum(simulated_memory(job, total, at) for job in jobs))
    age = max((at - job.since for job in jobs), default=0.0)
    warmth = load * (1 - math.exp(-max(0.0, age) / _WARMING_SECONDS))
    offset = 4 * _part(sum(uuid.encode()), 5)  # GPUs differ a little
    power = _IDLE_WATTS + offset + (_BUSY_WATTS - _IDLE_WATTS) * load
    heat = _IDLE_CELSIUS + offset + (_BUSY_CELSIUS - _IDLE_CELSIUS) * warmth
    return SimulatedUse(round(100 * load), memory, round(power, 1), round(heat))


def simulated_memory(job: JobOnGpu, total: int, at: float) -> int:
    """The memory of one job: 35 to 98 percent of what it reserved, or 10 to 60 of the GPU."""
    if job.memory is None:
        whole = total * (0.1 + 0.5 * _part(job.id, 1))
    else:
        whole = job.memory * (0.35 + 0.63 * _part(job.id, 1))
    return int(whole * _loaded(job, at))


def _load(job: JobOnGpu, at: float) -> float:
    """Between 0 and 1: training with short evaluations in between."""
    highest = 0.55 + 0.43 * _part(job.id, 2)
    period = 120.0 + 240.0 * _part(job.id, 3)
    phase = ((at - job.since) / period) % 1.0
    wave = 0.04 * math.sin(at / 7.0 + job.id)
    level = 0.35 if phase > 0.9 else 1.0
    return max(0.02, min(1.0, (highest * level + wave) * _loaded(job, at)))


def _loaded(job: JobOnGpu, at: float) -> float:
    """The part of its data that a job has loaded."""
    return max(0.1, min(1.0, (at - job.since) / _LOADING_SECONDS))


def _part(number: int, salt: int) -> float:
    """A number from 0 to 1 that looks random and is always the same for the same arguments."""
    mixed = (number * 0x9E3779B1 + salt * 0x85EBCA6B) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = mixed * 0x2C1B3C6D & 0xFFFFFFFF
    mixed ^= mixed >> 13
    return mixed / 0xFFFFFFFF
