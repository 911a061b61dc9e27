"""The command line of `hog`, and its lists of GPUs, which may be in a file."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import NoReturn

from stoker.compat.foreground.gpu_slots import expand_range
from stoker.errors import Error, UsageError

# The options of gpu-hog: their abbreviations stay valid although new options share prefixes.
_OLD_NAMES = ("--job_file", "--job_yielder", "--gpus", "--prefix", "--output_dir", "--help")
_POLL_SECONDS = 0.5
_MAX_BYTES = 1 << 16


class Unusable(Error):
    """Something named on the command line is unusable. Exits with 1, as gpu-hog does."""

    exit_code = 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, " ".join(self.format_usage().split()))


def parse(arguments: list[str]) -> argparse.Namespace:
    options = _parser().parse_args([_unabbreviated(word) for word in arguments])
    if options.gpus is None and options.gpu_file is None:
        raise UsageError(
            "the following arguments are required: --gpus", "hog --job_file jobs.txt --gpus 0,1"
        )
    if options.jobs_per_gpu < 1:
        raise UsageError(f"--jobs_per_gpu must be at least 1, not {options.jobs_per_gpu}")
    return options


def _unabbreviated(word: str) -> str:
    name, equals, value = word.partition("=")
    full = [old for old in _OLD_NAMES if len(name) > 2 and old.startswith(name)]
    return f"{full[0]}{equals}{value}" if len(full) == 1 else word


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hog",
        description="Hog them GPUs! Run many jobs on multiple GPUs. No root access required!",
        epilog="The first Ctrl-C reaches the jobs; the second, or SIGTERM, sends them SIGTERM. "
        "SIGUSR1 lets running jobs finish and starts no others. The exit code is the number of "
        "failed jobs, or 101 if more than 100 failed.",
    )
    jobs = parser.add_mutually_exclusive_group(required=True)
    option = jobs.add_argument
    option("--job_file", metavar="FILE", help="file to read jobs from, one per line")
    text = "Python file whose yielder() yields jobs"
    option("--job_yielder", metavar="FILE.py", help=text)
    option("--job_pipe", type=int, help=argparse.SUPPRESS)  # for the decorator
    option = parser.add_argument
    option("--result_pipe", type=int, help=argparse.SUPPRESS)
    text = "comma separated IDs of the GPUs to use; repeat an ID to run several jobs on it at the "
    text += "same time: 0,0,1; also 0-3, UUIDs, pairs 0+1"
    option("--gpus", metavar="IDS", help=text)
    text = "read the IDs from a file, which may change at run time"
    option("--gpu_file", metavar="FILE", help=text)
    text = "jobs at a time on each GPU (default: 1)"
    option("--jobs_per_gpu", metavar="N", type=int, default=1, help=text)
    option("--prefix", default="job_", help="prefix of the job folders (default: job_)")
    text = "output folder (default: hog_run)"
    option("--output_dir", metavar="DIR", default="hog_run", help=text)
    option("--resume", action="store_true", help="skip jobs that succeeded in an earlier run")
    text = "call job(job_name, job_instruction, output_dir, gpu_id) of this file for each job, "
    text += "instead of a shell"
    option("--function", metavar="FILE.py[:NAME]", help=text)
    text = "run before each job; the job fails if CMD fails"
    option("--pre_hook", metavar="CMD", help=text)
    text = "run after each job, with HOG_STATUS and other variables"
    option("--post_hook", metavar="CMD", help=text)
    text = "also write the console lines to FILE, with times"
    option("--log_file", metavar="FILE", help=text)
    option("--exit-zero", action="store_true", help="exit with 0 even if jobs failed")
    return parser


def gpu_ids(text: str, per_gpu: int = 1) -> list[str]:
    """The device strings of the slots for a list of GPUs. Raises Unusable.

    >>> gpu_ids("0, 0,1"), gpu_ids("01"), gpu_ids("0-2 7"), gpu_ids("0+1,2+3"), gpu_ids("-1")
    (['0', '0', '1'], ['1'], ['0', '1', '2', '7'], ['0,1', '2,3'], ['-1'])
    """
    words = [word for part in text.split(",") for word in part.split() or [""]]
    return [slot for word in words for slot in _slots(word)] * per_gpu


def _slots(word: str) -> list[str]:
    if "+" in word.lstrip("+"):
        return [",".join(_id(part) for part in word.split("+"))]
    return [_id(one) for one in expand_range(word)]


def _id(word: str) -> str:
    if word[:4].upper() in ("GPU-", "MIG-"):
        return word
    try:
        return str(int(word))
    except ValueError:
        raise Unusable(
            f"`{word}` is not a GPU ID", "example: --gpus 0,1,2 (or 0-2, or UUIDs)"
        ) from None


class GpuFile:
    """A file of GPU IDs, separated by commas, spaces or newlines; `#` starts a comment."""

    def __init__(self, path: str, per_gpu: int) -> None:
        self._path = path
        self._per_gpu = per_gpu
        self._version: tuple[int, int, int] | None = None  # inode, mtime, size
        self._last_error = ""
        self.next_poll = 0.0

    def read(self) -> list[str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                info = os.fstat(file.fileno())
                self._version = (info.st_ino, info.st_mtime_ns, info.st_size)
                lines = [line.partition("#")[0] for line in file.read(_MAX_BYTES).splitlines()]
        except (OSError, ValueError) as error:
            raise Unusable(f"cannot read the GPU file `{self._path}`: {error}") from None
        text = " ".join(" ".join(lines).replace(",", " ").split())
        return gpu_ids(text, self._per_gpu) if text else []

    def read_if_changed(self, warn: Callable[[str], None]) -> list[str] | None:
        """The slots if the file has changed; an invalid file is reported and ignored."""
        now = time.monotonic()
        if now < self.next_poll:
            return None
        self.next_poll = now + _POLL_SECONDS
        try:
            info = os.stat(self._path)
            if (info.st_ino, info.st_mtime_ns, info.st_size) == self._version:
                return None
            return self.read()
        except (OSError, Error) as error:
            reason = error.message if isinstance(error, Error) else str(error)
            if reason != self._last_error:
                self._last_error = reason
                warn(f"the GPU file is ignored: {reason}")
            return None
