"""What `stoker gpus` shows about MPS on a GPU."""

from __future__ import annotations

import time

from stoker.client.views.gpus import MpsView
from stoker.engine.model import MPS, Device
from stoker.engine.store.job_queries import JobRow
from stoker.features.mps.mps_folder import FAILED, READY, STARTING, STOPPED, MpsFolder
from stoker.features.mps.mps_program import why_missing

# How long the failure of MPS on a GPU that is not set up for it is shown.
_SHOW_FAILURE_SECONDS = 3600.0


def load_mps_view(device: Device, active: list[JobRow]) -> MpsView | None:
    """The state of MPS on a GPU; None if this user does not use it there."""
    uses = device.share == MPS or any(
        device.number in job.devices and job.request.share.startswith(MPS) for job in active
    )
    folder = MpsFolder(device.uuid)
    state = folder.read()
    has_monitor = state is not None and folder.has_monitor()
    missing = why_missing() if uses and not has_monitor else None
    if missing is not None:
        return MpsView("failed", missing, 0, 0)
    is_old = state is not None and time.time() - state.at > _SHOW_FAILURE_SECONDS
    if state is None or (is_old and not uses and not has_monitor):
        return MpsView("stopped", None, 0, 0) if uses else None
    words = {READY: "running", STARTING: "starting", FAILED: "failed", STOPPED: "stopped"}
    is_current = has_monitor or state.state == FAILED
    shown = words.get(state.state, "stopped") if is_current else "stopped"
    return MpsView(shown, state.reason if shown == "failed" else None, state.server, state.deaths)
