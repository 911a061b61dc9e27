"""Which field of a form an error is about, so that the web UI can show it beside that field."""

from __future__ import annotations

from stoker.errors import Conflict, Error, Impossible, NotFound
from stoker.web.models import JobOptions

_OF_GPUS = ("gpu_mem", "min_gpu_mem", "gpu_model", "gpu_ids")


def field_of(form: JobOptions | None, error: Error) -> str | None:
    """The field that the error names; else one that was given and that this kind is about."""
    if error.field is not None or form is None:
        return error.field
    if isinstance(error, Impossible):
        return next((name for name in _OF_GPUS if getattr(form, name)), "gpus")
    if isinstance(error, (Conflict, NotFound)) and getattr(form, "after", None):
        return "after"
    return None
