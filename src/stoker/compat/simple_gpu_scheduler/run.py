"""One run of `simple_gpu_scheduler`.

Users' scripts know its announcements and the order of its slots by heart: both are as they were.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from stoker.compat.foreground.entry import say, write_line
from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.gpu_slots import LAST_FREED, split_devices
from stoker.compat.foreground.job_sources import LineJobs
from stoker.compat.foreground.jobs import End, Job, wants_zero
from stoker.compat.foreground.scratch_folders import keep_commands
from stoker.compat.simple_gpu_scheduler.options import parse
from stoker.devices.discovery import find_devices
from stoker.errors import Error, UsageError
from stoker.settings import Settings, load_settings


def run(arguments: list[str]) -> int:
    options = parse(arguments)
    settings = load_settings()
    devices = _devices(options.gpus, options.jobs_per_gpu, settings)
    announcer = Announcer()
    jobs = LineJobs(_open(options.commands_file), announcer.job)
    attached = ForegroundRun(
        devices, jobs, announcer, order=LAST_FREED, passes_interrupts=True, settings=settings
    )
    summary = attached.work()
    if jobs.failure is not None and not summary.was_interrupted:  # or the terminal is gone, which
        raise Error(f"the commands cannot be read any further: {jobs.failure}")  # we were told
    if not jobs.at_end or attached.waiting or announcer.cancelled:
        _keep_rest(announcer.cancelled, [*attached.waiting, *jobs.read_rest()], settings)
    summary = summary._replace(failed=summary.failed + announcer.refused)
    return summary.exit_code(wants_zero(options.exit_zero))


def _devices(words: Sequence[str], per_gpu: int, settings: Settings) -> list[str]:
    devices = split_devices(words, per_gpu)
    if not any(devices) and len(words) == 1 and "CUDA_VISIBLE_DEVICES" not in os.environ:
        # --gpus "$CUDA_VISIBLE_DEVICES": where that is not set, programs see all GPUs.
        found = find_devices(settings.devices, settings.gpus_by_uuid)
        return [device.visible for device in found] * per_gpu or devices
    return devices


def _open(path: str | None) -> int:
    try:
        descriptor = 0 if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(descriptor, 0)  # a folder can be opened, but not this
    except OSError as error:
        name = "stdin" if path is None else f"`{path}`"
        raise UsageError(f"cannot read {name}: {error.strerror}", "pipe commands into it") from None
    return descriptor


class Announcer(Reporter):
    """Says where each command goes, before the command can say anything itself."""

    def __init__(self) -> None:
        self._is_interrupted = False
        self.refused = 0
        self.cancelled: list[Job] = []

    def job(self, line: str) -> Job | None:
        if "\0" in line:
            self.refused += 1
            self.says("a command holds a NUL byte; it is not run and counts as failed")
            return None
        return Job(line.rstrip(), keep_children=True)

    def starting(self, job: Job, device: str) -> None:
        write_line(f"Processing command `{job.command}` on gpu {device}")

    def ended(self, job: Job, device: str, end: End) -> None:
        is_interrupted = self._is_interrupted and (end.signal == signal.SIGINT or end.code == 130)
        if end.cause == "user" or is_interrupted:
            self.cancelled.append(job)

    def signalled(self, number: int) -> bool:
        self._is_interrupted = self._is_interrupted or number == signal.SIGINT
        return False


def _keep_rest(cancelled: list[Job], waiting: list[Job], settings: Settings) -> None:
    """The commands may have come from a pipe, and be gone with us."""
    if not cancelled and not waiting:
        return
    commands = [str(job.command) for job in (*cancelled, *waiting)]
    parts = [f"{len(cancelled)} ended early"] if cancelled else []
    parts += [f"{len(waiting)} not started"] if waiting else []
    try:
        where = f"the commands are in {keep_commands(settings, 'simple_gpu_scheduler', commands)}"
    except OSError as error:
        where = f"the commands cannot be written down ({error.strerror})"
    say(f"{' and '.join(parts)}: {where}")
