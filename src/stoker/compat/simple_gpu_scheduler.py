"""`simple_gpu_scheduler --gpus 0 1 2 < commands`: commands from stdin, one at a time on each GPU.

Users' scripts know its announcements and the order of its slots by heart: both are as they were.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from stoker.compat.attached import AttachedRun, Reporter
from stoker.compat.door import enter, write_line
from stoker.compat.folders import keep_commands
from stoker.compat.job_sources import LineJobs
from stoker.compat.jobs import End, Job, wants_zero
from stoker.compat.slots import LAST_FREED, split_devices
from stoker.devices.probe import find_devices
from stoker.errors import Error, UsageError
from stoker.settings import Settings, load_settings

_EPILOG = """
One command a line, for /bin/sh; a backslash at the end continues a line. A repeated id is another
slot; with several words each is one slot, so `--gpus 0,1 2,3` makes two slots of two GPUs.

The exit code is the number of failed commands, 101 for more than 100. SIGUSR1: let running commands
finish and start no more. Ctrl-C and SIGTERM: end them as well; what was not run is kept in a file.
"""


def main() -> int:
    return enter(run)


def run(arguments: list[str]) -> int:
    flags = _parser().parse_args(arguments)
    settings = load_settings()
    devices = _devices(flags.gpus, flags.jobs_per_gpu, settings)
    announcer = Announcer()
    jobs = LineJobs(_open(flags.commands_file), announcer.job)
    attached = AttachedRun(
        devices, jobs, announcer, order=LAST_FREED, passes_interrupts=True, settings=settings
    )
    summary = attached.work()
    if jobs.failure is not None:
        raise Error(f"the commands cannot be read any further: {jobs.failure}")
    if not jobs.at_end or attached.waiting or announcer.cancelled:
        _keep_rest(announcer.cancelled, [*attached.waiting, *jobs.read_rest()], settings)
    summary = summary._replace(failed=summary.failed + announcer.refused)
    return summary.exit_code(wants_zero(flags.exit_zero))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "simple_gpu_scheduler",
        description="Run commands from stdin on GPUs, each on one that is free.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--gpus", nargs="+", required=True,
        help="ids for CUDA_VISIBLE_DEVICES: 0 1 2, or 0,1,2, or 0-2",
    )  # fmt: skip
    parser.add_argument(
        "--jobs-per-gpu", "--jobs_per_gpu", "--max_process_per_gpu", type=_positive, default=1,
        metavar="N", help="so many commands at a time on each",
    )  # fmt: skip
    parser.add_argument(
        "--commands-file", "--commands_file", metavar="FILE", help="read this instead of stdin"
    )
    parser.add_argument(
        "--exit-zero", action="store_true", help="exit with 0 whatever the commands returned"
    )
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 to 1000")
    return int(text)


def _devices(words: Sequence[str], per_gpu: int, settings: Settings) -> list[str]:
    devices = split_devices(words, per_gpu)
    if not any(devices) and len(words) == 1 and "CUDA_VISIBLE_DEVICES" not in os.environ:
        # --gpus "$CUDA_VISIBLE_DEVICES": where that is not set, programs see all GPUs.
        found = find_devices(settings.devices, settings.gpus_by_uuid)
        return [device.visible for device in found] * per_gpu or devices
    return devices


def _open(path: str | None) -> int:
    try:
        if path is not None:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.fstat(0)
    except OSError as error:
        name = "stdin" if path is None else f"`{path}`"
        raise UsageError(f"cannot read {name}: {error.strerror}", "pipe commands into it") from None
    return 0


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
        return Job(line.rstrip())

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
    path = keep_commands(settings, "simple_gpu_scheduler", commands)
    parts = [f"{len(cancelled)} ended early"] if cancelled else []
    parts += [f"{len(waiting)} not started"] if waiting else []
    print(f"{' and '.join(parts)}: the commands are in {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
