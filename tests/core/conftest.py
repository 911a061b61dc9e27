"""Hypothesis has no deadline: a slow run on a busy machine is not a failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "stoker", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("stoker")
