"""One run of `simple_gpu_scheduler`.

Users' scripts depend on the announcements and on the order of the slots: both match the original.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from stoker.compat.foreground.entry import write_line, write_notice
from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.gpu_slots import LAST_FREED, split_devices
from stoker.compat.foreground.job_sources import LineJobs
from stoker.compat.foreground.jobs import End, Job, wants_zero
from stoker.compat.foreground.scratch_folders import save_commands
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
    foreground = ForegroundRun(
        devices, jobs, announcer, order=LAST_FREED, passes_interrupts=True, settings=settings
    )
    summary = foreground.work()
    if jobs.failure is not None and not summary.was_interrupted:
        # After an interrupt, the read error only means that the terminal was closed.
        raise Error(f"cannot read more commands: {jobs.failure}")
    if not jobs.at_end or foreground.waiting or announcer.cancelled:
        _save_remaining(announcer.cancelled, [*foreground.waiting, *jobs.read_rest()], settings)
    summary = summary._replace(failed=summary.failed + announcer.refused)
    return summary.exit_code(wants_zero(options.exit_zero))


def _devices(words: Sequence[str], per_gpu: int, settings: Settings) -> list[str]:
    devices = split_devices(words, per_gpu)
    if not any(devices) and len(words) == 1 and "CUDA_VISIBLE_DEVICES" not in os.environ:
        # --gpus "$CUDA_VISIBLE_DEVICES" with an unset variable means all GPUs.
        found = find_devices(settings.devices, settings.gpus_by_uuid)
        return [device.visible for device in found] * per_gpu or devices
    return devices


def _open(path: str | None) -> int:
    try:
        descriptor = 0 if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.read(descriptor, 0)  # fails for a directory, which can be opened
    except OSError as error:
        if path is None:
            hint = "pipe commands into it"
            raise UsageError(f"cannot read stdin: {error.strerror}", hint) from None
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None
    return descriptor


class Announcer(Reporter):
    """Announces the device of each command before the command can print anything."""

    def __init__(self) -> None:
        self._is_interrupted = False
        self.refused = 0
        self.cancelled: list[Job] = []

    def job(self, line: str) -> Job | None:
        if "\0" in line:
            self.refused += 1
            self.notice("a command contains a NUL byte; it is not run and counts as failed")
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


def _save_remaining(cancelled: list[Job], waiting: list[Job], settings: Settings) -> None:
    """Save the commands that did not finish, because a pipe cannot be read again."""
    if not cancelled and not waiting:
        return
    commands = [str(job.command) for job in (*cancelled, *waiting)]
    parts = [f"{len(cancelled)} interrupted"] if cancelled else []
    parts += [f"{len(waiting)} not started"] if waiting else []
    try:
        path = save_commands(settings, "simple_gpu_scheduler", commands)
    except OSError as error:
        result = f"cannot save the commands: {error.strerror}"
    else:
        result = f"commands saved to {path}"
    write_notice(f"{' and '.join(parts)}; {result}")
