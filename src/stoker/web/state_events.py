"""A live state as JSON for the browser, and the difference between two of them."""

from __future__ import annotations

import os

from stoker.client.live.live_state import LiveState, wait_json
from stoker.client.views import job as views
from stoker.client.views.job_waits import Wait
from stoker.engine.daemon.gpus.process_owners import user_name


def overview(
    state: LiveState, event: int, read_only: bool, default_backend: str
) -> dict[str, object]:
    return {
        "now": views.iso(state.at),
        "event_id": event,
        "read_only": read_only,
        "user": user_name(os.geteuid()),
        "host": os.uname().nodename,
        "daemon": state.daemon,
        "gpus": state.gpus,
        "gpu_error": state.gpu_error,
        "backends": state.backends,
        "resources": state.host,
        "default_backend": default_backend,
        "running": [state.job(id) for id in state.running],
        "queue": [state.job(id) for id in state.queue],
        "recent": [state.job(id) for id in state.recent],
        "counts": state.counts,
        "sweeps": list(state.sweeps.values()),
    }


def difference(old: LiveState, new: LiveState) -> dict[str, object] | None:
    """The content of the event that turns `old` into `new`; None when nothing changed."""
    changed = [
        id
        for id, text in new.serialized.items()
        if old.serialized.get(id) != text or (id in new.waits) != (id in old.waits)
    ]
    removed = [id for id in old.jobs if id not in new.jobs]
    sweeps = [sweep for name, sweep in new.sweeps.items() if old.sweeps.get(name) != sweep]
    removed_sweeps = [name for name in old.sweeps if name not in new.sweeps]
    sent = set(changed)
    changed_waits = {}
    for id, wait in new.waits.items():
        if id in sent:
            continue
        if _differs(old.waits[id], wait):
            changed_waits[id] = wait_json(wait, new.at)
        else:
            new.waits[id] = old.waits[id]  # what clients have; small changes add up
    changed_runs = {}
    for id, run in new.runs.items():
        if id in sent:
            continue
        if id not in old.runs or run.differs(old.runs[id], new.at):
            changed_runs[id] = run.as_json(new.at)
        else:
            new.runs[id] = old.runs[id]
    is_same = (
        old.gpus,
        old.gpu_error,
        old.counts,
        old.daemon,
        old.queue,
        old.backends,
        old.host,
    ) == (new.gpus, new.gpu_error, new.counts, new.daemon, new.queue, new.backends, new.host)
    if is_same and not (
        changed or removed or sweeps or removed_sweeps or changed_waits or changed_runs
    ):
        return None
    content: dict[str, object] = {
        "now": views.iso(new.at),
        "counts": new.counts,
        "gpus": new.gpus,
        "gpu_error": new.gpu_error,
        "resources": new.host,
        "daemon": new.daemon,
        "jobs": [new.job(id) for id in changed],
        "removed": removed,
        "sweeps": sweeps,
        "removed_sweeps": removed_sweeps,
        "waits": changed_waits,
        "runs": changed_runs,
    }
    if old.queue != new.queue:
        content["queue"] = list(new.queue)
    if old.backends != new.backends:  # a cluster may have thousands of nodes
        content["backends"] = new.backends
    return content


def _differs(old: Wait, new: Wait) -> bool:
    """Whether clients need an update; a start time that moved by a few seconds does not count."""
    if (old.ready, old.short) != (new.ready, new.short):
        return True
    if old.why != new.why or old.starts_at is None or new.starts_at is None:
        return (old.why, old.starts_at is None) != (new.why, new.starts_at is None)
    return abs(old.starts_at - new.starts_at) > 5.0
