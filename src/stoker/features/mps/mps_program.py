"""NVIDIA's program for MPS: whether it is there, and how long it may take to start."""

from __future__ import annotations

import os

PROGRAM = "nvidia-cuda-mps-control"
START_SECONDS = 10.0  # for the control daemon, and again for its first server


def why_missing() -> str | None:
    """Why MPS cannot be started at all; None if its program is on the PATH."""
    for folder in os.environ.get("PATH", "").split(":"):
        if os.access(os.path.join(folder or ".", PROGRAM), os.X_OK):
            return None
    return f"`{PROGRAM}` is not on the PATH"
