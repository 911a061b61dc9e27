"""The options and one run of `simple_gpu_scheduler`.

Users' scripts depend on the announcements and on the order of the slots: both match the original.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from stoker.compat.foreground.entry import write_line, write_notice
from stoker.compat.foreground.foreground_run import ForegroundRun, Reporter
from stoker.compat.foreground.gpu_slots import LAST_FREED, split_devices
from stoker.compat.foreground.jobs import End, Job, LineJobs, open_lines, wants_zero
from stoker.engine.devices.discovery import find_devices
from stoker.errors import Error, NoPermission, UsageError
from stoker.record import Record
from stoker.settings import Settings, load_settings, prepare_state_dir
from stoker.text.byte_text import to_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

_EPILOG = """
Each line is a command for /bin/sh; a trailing backslash continues it on the next line. A repeated
ID is another slot on that GPU. Several words are one slot each: `--gpus 0,1 2,3` makes two slots of
two GPUs.

The exit code is the number of failed commands, or 101 if more than 100 failed. SIGUSR1 lets running
commands finish and starts no others. Ctrl-C and SIGTERM also terminate the running commands.
Commands that did not finish or start are saved to a file.
"""


class Options(Record):
    gpus: list[str]
    jobs_per_gpu: int = 1
    commands_file: str | None = None
    exit_zero: bool = False


def _parse(arguments: list[str]) -> Options:
    """Parse a command line; argparse exits for `--help` and usage errors."""
    gpus = _parse_gpus_only(arguments)
    if gpus is not None:
        return Options(gpus)
    flags = _parser().parse_args(arguments)
    return Options(flags.gpus, flags.jobs_per_gpu, flags.commands_file, flags.exit_zero)


def _parse_gpus_only(arguments: list[str]) -> list[str] | None:
    """The values of `--gpus` if it is the only option.

    This avoids importing argparse, which takes a third of the time of a short run.

    >>> _parse_gpus_only(["--gpus", "0", "1"])
    ['0', '1']
    >>> _parse_gpus_only(["--gpus"]), _parse_gpus_only(["--gpus", "0", "--exit-zero"])
    (None, None)
    """
    first, *words = arguments or [""]
    if first != "--gpus" or not words or any(word.startswith("-") for word in words):
        return None
    return words


def _parser() -> argparse.ArgumentParser:
    import argparse  # slow to import, and rarely needed

    parser = argparse.ArgumentParser(
        "simple_gpu_scheduler",
        description="Run the commands read from stdin, each on a free GPU.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    text = "GPU IDs for CUDA_VISIBLE_DEVICES: 0 1 2, or 0,1,2, or 0-2"
    option("--gpus", nargs="+", required=True, help=text)
    names = ("--jobs-per-gpu", "--jobs_per_gpu", "--max_process_per_gpu")
    text = "number of commands that run at the same time on each GPU (default: 1)"
    option(*names, type=_positive, default=1, metavar="N", help=text)
    text = "read commands from FILE instead of stdin"
    option("--commands-file", "--commands_file", metavar="FILE", help=text)
    option("--exit-zero", action="store_true", help="exit with 0 even if commands failed")
    return parser


def _positive(text: str) -> int:
    import argparse

    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 to 1000")
    return int(text)


def run(arguments: list[str]) -> int:
    options = _parse(arguments)
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
        if path is not None:
            return open_lines(path)
        os.read(0, 0)  # fails for a directory
        return 0
    except OSError as error:
        if path is None:
            hint = "pipe commands into it"
            raise UsageError(f"cannot read stdin: {error.strerror}", hint) from None
        raise UsageError(f"cannot read `{path}`: {error.strerror}") from None


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
    parts = [f"{len(cancelled)} interrupted"] if cancelled else []
    parts += [f"{len(waiting)} not started"] if waiting else []
    try:
        path = _new_file(settings)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(to_system("".join(f"{job.command}\n" for job in (*cancelled, *waiting))))
        result = f"commands saved to {path}"
    except OSError as error:
        result = f"cannot save the commands: {error.strerror}"
    write_notice(f"{' and '.join(parts)}; {result}")


def _new_file(settings: Settings) -> str:
    try:
        prepare_state_dir(settings)
        folder = os.path.join(settings.state_dir, "not-run")
        os.makedirs(folder, 0o700, exist_ok=True)
    except (NoPermission, OSError):
        import tempfile

        folder = tempfile.mkdtemp(prefix="stoker-not-run-")
    name = f"simple_gpu_scheduler-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    return os.path.join(folder, name)
