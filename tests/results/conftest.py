"""Hypothesis runs without a deadline, because a busy machine would make tests fail."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "stoker", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("stoker")
