"""Paths of job files, and the size limit of logs. Jobs write logs directly, not through a pipe."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from stoker.engine.supervisor.regular_files import open_for_reading
from stoker.errors import Unavailable

_FALLOC_FL_KEEP_SIZE = 1
_FALLOC_FL_PUNCH_HOLE = 2
_BLOCK = 4096
_PROGRESS_BYTES = 60


def job_folder(state_dir: str, job: int) -> str:
    """The folder for a job's own files; an empty one is removed when the job has ended."""
    return os.path.join(state_dir, "jobs", str(job // 1000), str(job))


def run_log_path(folder: str, job: int, number: int) -> str:
    """The log of an attempt of a job of `stoker run`, in the log folder of the run."""
    return os.path.join(folder, f"{job}.log" if number <= 1 else f"{job}.{number}.log")


def log_path(state_dir: str, job: int, number: int) -> str:
    """The log of one attempt. Each folder has the files of a thousand jobs."""
    return f"{job_folder(state_dir, job)}-{number}.log"


def metrics_path(folder: str) -> str:
    """The job's metrics file, next to its folder, so that `echo >>` can create it."""
    return f"{folder}.metrics.jsonl"


def is_metrics(path: str) -> bool:
    return path.endswith(".metrics.jsonl")


def progress_path(folder: str) -> str:
    """The job's progress file: one line of text."""
    return f"{folder}.progress"


def read_progress(folder: str) -> str | None:
    """The first line of the progress file, truncated; None if there is none."""
    try:
        descriptor = open_for_reading(progress_path(folder), follow=False)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _PROGRESS_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return text.partition("\n")[0].strip() or None


def stop_path(folder: str) -> str:
    """This file exists when the job should stop early (see `should_stop`)."""
    return f"{folder}.stop"


def requeue_path(folder: str) -> str:
    """Created by a job that requests to be run again and exits with 75."""
    return f"{folder}.requeue"


def remove_files(state_dirs: Iterable[str], jobs: Iterable[int]) -> int:
    """Delete the logs, reports and folders of removed jobs; returns the bytes freed."""
    listed = [path for state_dir in state_dirs for path in job_files(state_dir, jobs)]
    return sum(map(_remove, listed))


def job_files(state_dir: str, jobs: Iterable[int]) -> Iterator[str]:
    """The logs, reports and folders of jobs. Lists each folder of a thousand jobs once.

    Raises Unavailable if a folder cannot be listed, e.g. that of a backend on a lost file server.
    """
    groups: dict[int, set[int]] = {}
    for job in jobs:
        groups.setdefault(job // 1000, set()).add(job)
    for group, wanted in groups.items():
        place = os.path.join(state_dir, "jobs", str(group))
        try:
            names = os.listdir(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Unavailable(
                f"cannot list the files of jobs in `{place}`: {error.strerror}",
                "their jobs are kept",
            ) from None
        for name in names:
            digits = name.partition("-")[0].partition(".")[0]
            if digits.isdecimal() and int(digits) in wanted:
                yield os.path.join(place, name)


def size_of(path: str) -> int:
    """The bytes that a file or a folder takes on the disk; 0 if it does not exist."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    if not stat.S_ISDIR(info.st_mode):
        return info.st_blocks * 512
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(map(size_of, files))


def _remove(path: str) -> int:
    """Delete a file or a folder; returns the bytes freed."""
    freed = size_of(path)
    try:
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
            return freed
    except FileNotFoundError:
        return 0
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    return freed


def cap_log(path: str, limit: int) -> int:
    """Punch a hole into the middle of a long log; start and end stay, at the same offsets.

    Returns the size of the log, which the hole does not change; 0 if there is none.
    """
    try:
        info = os.stat(path)
    except OSError:
        return 0
    head = limit // 8 // _BLOCK * _BLOCK
    tail = limit // 2
    end = (info.st_size - tail) // _BLOCK * _BLOCK
    if info.st_blocks * 512 <= limit or end <= head:
        return info.st_size
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return info.st_size
    try:
        _punch(descriptor, head, end - head)
    except OSError:
        pass  # no free descriptor to load libc with; the next check retries
    finally:
        os.close(descriptor)
    return info.st_size


def _punch(descriptor: int, offset: int, length: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate(
        descriptor,
        _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE,
        ctypes.c_int64(offset),
        ctypes.c_int64(length),
    )
