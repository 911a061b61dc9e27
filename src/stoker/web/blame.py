"""Which field of a form an error is about, so that the page can say it beside that field."""

from __future__ import annotations

from stoker.errors import Conflict, Error, Impossible, NotFound, UsageError
from stoker.job_options import NAMES, read_options
from stoker.web.models import JobOptions

# How the sentences begin or what they name, for what cannot be found by trying.
_SAID = (
    ("the folder `", "cwd"),
    ("the command", "command"),
    ("a job needs a command", "command"),
    ("a sweep needs a command", "command"),
    ("there is no GPU `", "gpu_ids"),
    ("`signal`", "time_limit"),
)
_OF_CARDS = ("gpu_mem", "min_gpu_mem", "gpu_model", "gpu_ids")


def field_of(form: JobOptions, error: Error) -> str | None:
    """The option that makes no sense by itself, else the one that the sentence speaks of."""
    given = {
        name: value
        for name, value in form.model_dump(include=set(NAMES)).items()
        if value not in (None, "", [])
    }
    if isinstance(error, UsageError):
        for name in given:
            try:
                read_options(
                    {name: given[name], **({"time_limit": 60} if name == "signal" else {})}
                )
            except UsageError as own:
                if own.message == error.message:
                    return name
    for words, name in _SAID:
        if error.message.startswith(words):
            return name
    if isinstance(error, Impossible):
        is_too_many = "but this host has" in error.message
        return "gpus" if is_too_many else next((n for n in _OF_CARDS if n in given), "gpus")
    if isinstance(error, (Conflict, NotFound)) and "after" in given:
        return "after"
    return None


def field_of_sweep(names: list[str], options: JobOptions | None, error: Error) -> str | None:
    """The same for a sweep, whose parameters are fields too: `parameters.lr`."""
    for name in names:
        if f"`{name}`" in error.message or error.message.startswith(f"`{name}="):
            return f"parameters.{name}"
    for word in ("trials", "metric", "method"):
        if word in error.message:
            return word
    return field_of(options or JobOptions.model_validate({}), error)
