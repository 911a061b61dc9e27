"""Measures the speed of jobs that share a GPU, from the steps that they report.

A job reports steps in $STOKER_METRICS (`{"step": 120, ...}`) or its progress in
$STOKER_PROGRESS_FILE. While the same jobs of one command profile are alone on a GPU, the steps of
each of them are counted over windows of at least `_WINDOW_SECONDS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from stoker.engine.model import DeviceState, RunningJob
from stoker.engine.policy.placement import is_measured
from stoker.engine.store import profiles
from stoker.engine.store.database import Database
from stoker.engine.supervisor.logs import metrics_path, progress_path, read_progress
from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.record import Record

_CHECK_SECONDS = 2.0
_WINDOW_SECONDS = 10.0
_TAIL_BYTES = 16 << 10


class Reading(Record):
    """The last step that a job reported, and when (wall clock)."""

    step: float
    at: float


class Speed(Record):
    """The steps a second of one job, while `jobs` jobs of its profile shared its GPU."""

    profile: int
    jobs: int
    speed: float


class _Window:
    __slots__ = ("began_at", "first", "together")

    def __init__(self, together: tuple[int, ...], began_at: float) -> None:
        self.together = together  # the attempts on the GPU
        self.began_at = began_at
        self.first: Reading | None = None  # the first report after that


class SpeedMeter:
    """`folder_for`: the folder of a job, next to which its reports are."""

    def __init__(self, folder_for: Callable[[int], str]) -> None:
        self._folder_for = folder_for
        self._windows: dict[int, _Window] = {}  # by attempt
        self._check_at = 0.0
        self._unrecorded: list[Speed] = []

    @property
    def has_unrecorded(self) -> bool:
        return bool(self._unrecorded)

    def check(
        self,
        running: Mapping[int, RunningJob],
        states: Mapping[int, DeviceState],
        now: float,
        wall: float,
    ) -> None:
        """Read the reports of running jobs, every two seconds."""
        if now < self._check_at:
            return
        self._check_at = now + _CHECK_SECONDS
        for attempt in self._windows.keys() - running.keys():
            del self._windows[attempt]
        for number, jobs in _jobs_by_device(running).items():
            together = tuple(job.attempt for job in jobs)
            state = states.get(number)
            if not _are_alike(jobs) or state is None or state.has_other_processes:
                for job in jobs:
                    self._windows.pop(job.attempt, None)
                continue
            for job in jobs:
                self._measure(job, together, wall)

    def _measure(self, job: RunningJob, together: tuple[int, ...], wall: float) -> None:
        window = self._windows.get(job.attempt)
        if window is None or window.together != together:
            self._windows[job.attempt] = _Window(together, wall)
            return
        reading = read_step(self._folder_for(job.id))
        if reading is None or reading.at <= window.began_at:
            return
        first = window.first
        if first is None or reading.step < first.step:  # it started over
            window.first = reading
            return
        seconds = reading.at - first.at
        if seconds >= _WINDOW_SECONDS and reading.step > first.step:
            speed = (reading.step - first.step) / seconds
            self._unrecorded.append(Speed(job.profile, len(together), speed))
            window.first = reading

    def record(self, db: Database) -> set[int]:
        """Write the speeds; inside the transaction of a tick. Returns their profiles."""
        for one in self._unrecorded:
            profiles.learn_speed(db, one.profile, one.jobs, one.speed)
        return {one.profile for one in self._unrecorded}

    def committed(self) -> None:
        self._unrecorded.clear()


def _jobs_by_device(running: Mapping[int, RunningJob]) -> dict[int, list[RunningJob]]:
    found: dict[int, list[RunningJob]] = {}
    for job in running.values():
        for number in job.devices:
            found.setdefault(number, []).append(job)
    return found


def _are_alike(jobs: list[RunningJob]) -> bool:
    """Whether these are jobs of one profile with one GPU each, and none may be paused."""
    if any(len(job.devices) > 1 for job in jobs) or len({job.profile for job in jobs}) > 1:
        return False
    return bool(jobs[0].profile) and (
        len(jobs) == 1 or not any(is_measured(job.request) for job in jobs)
    )


def read_step(folder: str) -> Reading | None:
    """Return the last step that a job reported; None if it reports none."""
    return _last_metric(metrics_path(folder)) or _progress(folder)


def _last_metric(path: str) -> Reading | None:
    try:
        descriptor = open_for_reading(path)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        tail = os.pread(descriptor, _TAIL_BYTES, max(0, info.st_size - _TAIL_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    from stoker.text.progress.report_line import InvalidReport, read_json_line

    for line in reversed(tail.split(b"\n")[:-1]):
        try:
            report = read_json_line(line)
        except InvalidReport:
            continue
        if report.step is not None:
            return Reading(report.step, info.st_mtime if report.at is None else report.at)
    return None


def _progress(folder: str) -> Reading | None:
    text = read_progress(folder)
    if text is None:
        return None
    from stoker.text.progress.progress_number import progress_number

    step = progress_number(text)
    try:
        return None if step is None else Reading(step, os.stat(progress_path(folder)).st_mtime)
    except OSError:
        return None
