"""When two trials are the same trial: equal parameters and an equal command."""

from __future__ import annotations

import hashlib

from stoker.sweeps.template import Template
from stoker.sweeps.values import Point, key


def identity(template: Template, point: Point) -> str:
    """16 hex digits; 1e-3 is 0.001 and 1 is 1.0, in whatever order the parameters come."""
    params = {name: value.data for name, value in point.items()}
    text = key({"command": list(template.words), "shell": template.shell, "params": params})
    return hashlib.sha256(text.encode()).hexdigest()[:16]
