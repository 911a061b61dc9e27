"""Values for JSON, which has no NaN and no infinity."""

from __future__ import annotations

import math


def finite(value: object) -> object:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    return value
