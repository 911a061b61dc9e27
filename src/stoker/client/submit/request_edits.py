"""Change the request of a waiting job, for `stoker edit` and the web UI."""

from __future__ import annotations

from stoker.engine.model import Request

_CHECKED = ("gpu_mem", "gpu_ids", "gpu_model", "share")
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stoker.client.submit.option_values import OptionNames


def changed_request(request: Request, given: dict[str, Any], named: OptionNames) -> Request | None:
    """Return the request with the options in `given`; None if no value differs.

    The keys are those of the job options. A size of 0 and an empty list, model or way to share
    remove the option. Raises UsageError for options that exclude each other.
    """
    changed: dict[str, Any] = {key: given[key] for key in ("gpus", "cpus") if key in given}
    if "mem" in given:
        changed |= _memory(given["mem"], "host_memory", "is_auto_host")
    if "gpu_mem" in given:
        changed |= _memory(given["gpu_mem"], "memory", "is_auto")
    if "gpu_ids" in given:
        changed["ids"] = tuple(given["gpu_ids"])
    if "gpu_model" in given:
        changed["model"] = given["gpu_model"] or None
    if "share" in given:
        changed["share"] = given["share"]
    new = request._replace(**changed)
    if any(key in given for key in _CHECKED):
        from stoker.client.submit.parsed_options import check_request

        check_request(new, named)
    return None if new == request else new


def _memory(size: int | str, bytes_field: str, auto_field: str) -> dict[str, Any]:
    is_auto = size == "auto"
    return {bytes_field: None if is_auto else size or None, auto_field: is_auto}
