"""GPU memory to reserve, from the peak of earlier attempts."""

from __future__ import annotations

from stoker.engine.model import Request

_GRAIN = 256 << 20
_SMALLEST = 1 << 30


def budget(peak: int) -> int:
    """Return the bytes to reserve for a profile with this peak: 10% more, in steps of 256 MiB.

    >>> budget(8 << 30) / (1 << 30)
    9.0
    """
    return -(-(peak + peak // 10) // _GRAIN) * _GRAIN


def without_margin(reserved: int) -> int:
    """Return the least peak of which these bytes may be the budget.

    >>> without_margin(budget(8 << 30)) <= 8 << 30
    True
    """
    return max(0, (reserved - _GRAIN) * 10 // 11)


def after_oom(
    request: Request,
    on_oom: str | None,
    had: int | None,
    gpus: tuple[str, ...],
    most: int,
    needed: int | None = None,
) -> Request:
    """Return the next request of a job that ran out of GPU memory.

    `had` is the peak memory of the attempt, `gpus` are the names of its GPUs, `most` is the memory
    of the largest GPU, and `needed` what the job's error message asked for, if it has a size.
    """
    if on_oom == "elsewhere":
        return request._replace(avoid=tuple(sorted({*request.avoid, *gpus})))
    if on_oom == "alone":
        return request._replace(exclusive=True, memory=None, is_auto=False)
    if on_oom == "bigger":
        if request.memory is None and not request.is_auto:
            return request._replace(exclusive=True)  # it had a slot; the whole GPU is the most
        known = max(had or 0, request.memory or 0, _SMALLEST)
        # A need below the reservation says nothing: other processes used the memory.
        bigger = budget(needed if needed is not None and needed > known else known + known // 2)
        if bigger > most:
            return request._replace(exclusive=True, memory=None, is_auto=False)
        return request._replace(memory=bigger, is_auto=False)
    return request
