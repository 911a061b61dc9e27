"""What the GPUs do, in the usage recorder: changes become intervals."""

from __future__ import annotations

from stoker.core.formats.activity_lines import GONE, ActivityChange
from stoker.core.gpus.gpu_time import Interval

_MAX_UNSAVED = 10_000  # intervals, while the disk is full


class GpuActivities:
    """The present interval of each GPU, and those that ended and are not saved yet."""

    def __init__(self) -> None:
        self._present: dict[str, Interval] = {}  # by UUID
        self._ended: list[Interval] = []

    def __bool__(self) -> bool:
        return bool(self._present)

    def add(self, change: ActivityChange) -> None:
        """End the present interval of a GPU, and begin the next one."""
        before = self._present.pop(change.uuid, None)
        if before is not None and before.since != change.at:
            self._ended.append(before._replace(until=max(before.since, change.at)))
            del self._ended[:-_MAX_UNSAVED]
        if change.kind != GONE:
            self._present[change.uuid] = Interval(
                uuid=change.uuid,
                since=change.at,
                until=change.at,
                kind=change.kind,
                jobs=change.jobs,
                reason=change.reason,
                starts=change.starts,
            )

    def unsaved(self, now: float) -> list[Interval]:
        """The intervals to save; those of the present last until now."""
        present = [one._replace(until=max(one.since, now)) for one in self._present.values()]
        return [*self._ended, *present]

    def saved(self) -> None:
        self._ended.clear()
