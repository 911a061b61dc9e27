"""Stop a job that runs on several nodes, and give it time to save its work.

`srun` kills its tasks at once when it gets SIGTERM. So SIGTERM is sent to the tasks through Slurm,
and the processes on this node are stopped after the grace period.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from stoker.record import Record

_SCANCEL_SECONDS = 30.0


class _Ending(Record):
    kill_at: float
    reason: str


class MultiNodeStops:
    """`kill(job, reason)` ends the processes of a job on this node."""

    def __init__(self, kill: Callable[[int, str], bool], grace: float) -> None:
        self._kill = kill
        self._grace = grace
        self._limits: dict[int, float] = {}  # end of the time limit of running jobs
        self._ending: dict[int, _Ending] = {}

    def started(self, job: int, time_limit: float | None, now: float) -> None:
        if time_limit is not None:
            self._limits[job] = now + time_limit

    def stop(self, job: int, grace: float | None, reason: str, now: float) -> None:
        """Send SIGTERM to the tasks of a job; a second request may shorten the grace period."""
        kill_at = now + (self._grace if grace is None else grace)
        known = self._ending.get(job)
        if known is not None:
            self._ending[job] = known._replace(kill_at=min(kill_at, known.kill_at))
            return
        self._ending[job] = _Ending(kill_at, reason)
        try:
            subprocess.run(
                ["scancel", "--signal=TERM", os.environ["SLURM_JOB_ID"]],
                stdin=subprocess.DEVNULL,
                timeout=_SCANCEL_SECONDS,
                check=False,
            )
        except (OSError, KeyError, subprocess.TimeoutExpired):
            self._ending[job] = _Ending(now, reason)  # Slurm does not answer: stop it at once

    def check(self, now: float) -> None:
        """Stop jobs at their time limit, and kill those whose grace period is over."""
        for job in [job for job, at in self._limits.items() if now >= at]:
            del self._limits[job]
            self.stop(job, None, "time_limit", now)
        for job, ending in self._ending.items():
            if now >= ending.kill_at:
                self._kill(job, ending.reason)

    def cause_of(self, job: int) -> str | None:
        """Why a job was stopped; None if it ended by itself."""
        self._limits.pop(job, None)
        ending = self._ending.pop(job, None)
        return None if ending is None else ending.reason
