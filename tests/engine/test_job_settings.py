"""Settings of jobs are stored without defaults, and those of a later release are kept."""

from __future__ import annotations

import json

from stoker.engine.job_settings import (
    DEFAULT_SETTINGS,
    JobSettings,
    settings_from_json,
    settings_of,
)


def test_defaults_are_not_stored() -> None:
    assert DEFAULT_SETTINGS.to_json() is None
    assert settings_from_json(None) == DEFAULT_SETTINGS
    assert json.loads(JobSettings(grace=0.0, warm="").to_json() or "") == {"grace": 0.0, "warm": ""}


def test_stored_settings_are_read_again() -> None:
    settings = JobSettings(
        retries=2, grace=1.5, no_bind=True, warm="a\\\"\n\u00e9", notify="end:desktop",
        activation=("venv=/\udc8b", "uv=1"),
    )  # fmt: skip
    text = settings.to_json() or ""
    assert text.isascii()
    assert json.loads(text)["warm"] == settings.warm
    assert settings_from_json(text) == settings


def test_settings_of_a_later_release_are_kept() -> None:
    settings = settings_of({"retries": 2, "nice": 5, "limits": ["a", "b"]})
    assert settings.others == (("nice", 5), ("limits", ("a", "b")))
    changed = settings._replace(retries=0, no_bind=True)
    stored = json.loads(changed.to_json() or "")
    assert stored == {"no_bind": True, "nice": 5, "limits": ["a", "b"]}
    assert settings_from_json(changed.to_json()) == changed
