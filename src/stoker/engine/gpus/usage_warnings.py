"""Warnings about a running job that uses far less or more than it requested.

The rules, for readings of the last ten minutes (`WINDOW_SECONDS`), and only after the job has run
for that long, because programs load data before they compute:

- GPU: its GPUs were at 0% in every reading.
- GPU memory: it used at most half of its request and at least 2 GiB less; or more than its request.
- cores: it used at most a quarter of two or more requested cores; or more than twice as many.
- memory: it used at most a quarter of its request and at least 2 GiB less; or more than it.

Warnings about more memory than the request do not wait for ten minutes. Requests that Stoker
estimates (`auto`) have no warnings: they are corrected while the job runs.
"""

from __future__ import annotations

from stoker.record import Record
from stoker.text.durations import format_duration
from stoker.text.plurals import plural
from stoker.text.sizes import format_size

WINDOW_SECONDS = 600.0
_READINGS = 3  # fewer say nothing about ten minutes
_LITTLE_GPU_MEMORY = 0.5
_LITTLE_CORES = _LITTLE_MEMORY = 0.25
_MANY_CORES = 2.0
_LEAST_BYTES = 2 << 30  # a smaller rest is of no use to other jobs
_MORE = 1.02  # readings are rounded


class Requested(Record):
    """What a job declared; None and 0: nothing."""

    gpus: int = 0
    gpu_memory: int | None = None  # bytes on all its GPUs together
    cores: int = 0
    memory: int | None = None  # bytes of the host


class JobUsage(Record):
    """What a job used in the window; None: not measured."""

    seconds: float  # since it started
    readings: int = 0  # of its GPUs
    gpu_memory: int | None = None  # bytes, the most in the window, on all its GPUs
    gpu_use: float | None = None  # percent, the most in the window
    cores: float | None = None  # mean over the window
    memory: int | None = None  # bytes, the most in the window


def usage_warnings(requested: Requested, used: JobUsage) -> list[str]:
    """Return sentences about the job, each with `it` as its subject.

    >>> used = JobUsage(seconds=1200, readings=60, gpu_memory=8 << 30, gpu_use=0.0)
    >>> for warning in usage_warnings(Requested(gpus=1, gpu_memory=40 << 30), used):
    ...     print(warning)
    its GPU was at 0% for the last 10m00s: it may hang, or not use the GPU
    it uses 8.0 GiB of the 40 GiB of GPU memory that it requested
    """
    is_settled = used.seconds >= WINDOW_SECONDS
    found = [
        _gpu_words(requested, used) if is_settled else "",
        _memory_words(
            "GPU memory",
            requested.gpu_memory,
            used.gpu_memory,
            _LITTLE_GPU_MEMORY,
            is_settled=is_settled,
        ),
        _core_words(requested, used) if is_settled else "",
        _memory_words(
            "memory", requested.memory, used.memory, _LITTLE_MEMORY, is_settled=is_settled
        ),
    ]
    return [words for words in found if words]


def _gpu_words(requested: Requested, used: JobUsage) -> str:
    if not requested.gpus or used.gpu_use is None or used.readings < _READINGS:
        return ""
    if used.gpu_use > 0:
        return ""
    gpus = "its GPU was" if requested.gpus == 1 else f"its {requested.gpus} GPUs were"
    last = format_duration(WINDOW_SECONDS)
    return f"{gpus} at 0% for the last {last}: it may hang, or not use the GPU"


def _memory_words(
    kind: str, requested: int | None, used: int | None, little: float, *, is_settled: bool
) -> str:
    if requested is None or used is None:
        return ""
    if used > requested * _MORE:
        wanted = format_size(requested)
        return f"it uses {format_size(used)} of {kind}, more than the {wanted} that it requested"
    if is_settled and used <= requested * little and requested - used >= _LEAST_BYTES:
        wanted = f"{format_size(requested)} of {kind}"
        return f"it uses {format_size(used)} of the {wanted} that it requested"
    return ""


def _core_words(requested: Requested, used: JobUsage) -> str:
    if not requested.cores or used.cores is None:
        return ""
    if used.cores > requested.cores * _MANY_CORES:
        return f"it uses {used.cores:.1f} cores, more than the {requested.cores} that it requested"
    if requested.cores >= 2 and used.cores <= requested.cores * _LITTLE_CORES:
        return (
            f"it uses {used.cores:.1f} of the {plural(requested.cores, 'core')} that it requested"
        )
    return ""
