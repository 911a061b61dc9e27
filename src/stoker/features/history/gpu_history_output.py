"""The output of `stoker gpus --history`."""

from __future__ import annotations

import time

from stoker.cli.output import table
from stoker.client.queue import Queue
from stoker.features.history.gpu_history import (
    HEADER,
    history_cells,
    load_gpu_history,
    reason_cells,
)

_OFF = "nothing is recorded: `trace_seconds` is 0 in the settings"


def history_text(queue: Queue, seconds: float) -> str:
    """A table of shares, a table of reasons, and since when there are records."""
    found = load_gpu_history(queue.db, queue.settings, seconds)
    if not found:
        return "no GPUs found"
    parts = [table(HEADER, [history_cells(one) for one in found])]
    reasons = [cells for one in found for cells in reason_cells(one)]
    if reasons:
        parts.append(table(("GPU", "TIME", "WHY NO JOB RAN"), reasons))
    unknown = max(one.time.unknown for one in found)
    if not queue.settings.trace_seconds:
        parts.append(_OFF)
    elif unknown >= seconds:
        parts.append("no records yet")
    elif unknown >= 1:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - seconds + unknown))
        parts.append(f"records begin at {at}")
    return "\n\n".join(parts)
