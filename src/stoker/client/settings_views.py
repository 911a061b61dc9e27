"""The settings of a job (core/job_settings.py) as JSON, and in words."""

from __future__ import annotations

from stoker.client.environment_options import environment_json
from stoker.core.activation import shown_activation
from stoker.core.job_settings import JobSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# `signal` in JSON is the one that ended a job; the others are shown by the command line alone.
_NOT_IN_JSON = ("signal", "grace", "keep_children", "activation")
_LABELS = {"on_oom": "on OOM", "no_bind": "CPU binding", "warm": "warm start", "notify": "notifies"}


def settings_json(settings: JobSettings) -> dict[str, Any]:
    """For `show --json`, dry runs and the web UI."""
    values = {key: v for key, v in settings.values().items() if key not in _NOT_IN_JSON}
    values["warm"] = "auto" if settings.warm == "" else settings.warm
    values["notify"] = settings.notify.split(",") if settings.notify else []
    return values | environment_json(settings.activation)


def settings_rows(settings: JobSettings) -> list[tuple[str, str]]:
    """Label and text of each setting that is not the default; a switch has no text."""
    texts = settings.changes()
    activation = texts.pop("activation", ())
    if settings.no_bind:
        texts["no_bind"] = "off"
    if settings.warm == "":
        texts["warm"] = "learned modules"
    if settings.notify:
        texts["notify"] = settings.notify.replace(",", ", ")
    rows = [
        (_LABELS.get(key, key.replace("_", " ")), "" if value is True else str(value))
        for key, value in texts.items()
    ]
    return rows + shown_activation(activation)
