"""From what was seen of earlier runs to what the next one is promised."""

from __future__ import annotations

from stoker.core.model import Device, Request

_GRAIN = 256 << 20
_SMALLEST = 1 << 30


def budget(peak: int) -> int:
    """Memory for a job whose like needed `peak` bytes at most: a tenth more, in steps of 256 MiB.

    >>> budget(8 << 30) / (1 << 30)
    9.0
    """
    return -(-(peak + peak // 10) // _GRAIN) * _GRAIN


def after_oom(
    request: Request,
    on_oom: str | None,
    had: int | None,
    cards: tuple[str, ...],
    most: int,
) -> Request:
    """What a job that ran out of GPU memory on these cards asks for next time."""
    if on_oom == "elsewhere":
        return request._replace(avoid=tuple(sorted({*request.avoid, *cards})))
    if on_oom == "alone":
        return request._replace(exclusive=True, memory=None, is_auto=False)
    if on_oom == "bigger":
        if request.memory is None and not request.is_auto:
            return request._replace(exclusive=True)  # it had a slot; a card is all there is
        needed = max(had or 0, request.memory or 0, _SMALLEST)
        bigger = budget(needed + needed // 2)
        if bigger > most:  # more than the largest card has
            return request._replace(exclusive=True, memory=None, is_auto=False)
        return request._replace(memory=bigger, is_auto=False)
    return request


def sharing_advice(request: Request, peak: int, devices: tuple[Device, ...]) -> str | None:
    """How many such jobs would fit one card, if it is more than the one that has it now."""
    if not request.gpus or request.memory is not None or request.is_auto or request.exclusive:
        return None
    need = budget(peak)
    count = max((device.memory // need for device in devices), default=0)
    if count < 2:
        return None
    size = f"{need >> 30}G" if need % (1 << 30) == 0 else f"{need >> 20}M"
    return f"{count} of these fit one card: add --gpu-mem {size}"
