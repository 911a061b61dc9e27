"""Why an attempt failed, from the end of its log and from what the host saw."""

from __future__ import annotations

import os
from collections.abc import Callable

from stoker.core.model import Outcome
from stoker.core.outcome.log_tail import last_words
from stoker.core.outcome.retry import REQUEUE_CODE
from stoker.daemon.gpus.gpu_usage import GpuUse
from stoker.daemon.log_tails import LogTails
from stoker.store.attempts import JobToJudge
from stoker.supervisor.logs import requeue_path, stop_path


class Diagnosis:
    def __init__(
        self, log_for: Callable[[int, int], str | None], folder_for: Callable[[int], str]
    ) -> None:
        self._log_for = log_for
        self._folder_for = folder_for
        self._host_kills = _out_of_memory_kills()
        self._tails = LogTails()

    def add_cause(self, outcome: Outcome, facts: JobToJudge, use: GpuUse) -> Outcome:
        """The outcome, with a reason where one can be told from outside."""
        if self._was_stopped_early(outcome, facts):
            return outcome._replace(reason="stopped_early")
        if not outcome.status or outcome.reason is not None or facts.stop_requested:
            return outcome
        killed = outcome.status & 0x7F == 9 and self._was_killed_for_memory()
        code = None if outcome.status & 0x7F else outcome.status >> 8 & 0xFF
        if code == REQUEUE_CODE and self._asked_for_more(facts.job):
            return outcome._replace(reason="requeue")
        from stoker.core.outcome.failure_causes import (
            diagnose,  # regular expressions: only where a job failed
        )

        tail = self._tail(facts)
        found = diagnose(
            tail, code, outcome.status & 0x7F or None,
            gpu_was_full=use.was_full, host_killed=killed,
        )  # fmt: skip
        if found is None:
            is_trial = facts.sweep is not None  # only sweeps tell failures apart by them
            return outcome._replace(last_words=last_words(tail)) if is_trial else outcome
        cause, evidence = found
        return outcome._replace(reason=cause, detail=evidence)

    def _was_stopped_early(self, outcome: Outcome, facts: JobToJudge) -> bool:
        """Whether a trial ended because its sweep asked it to, or ended it for not listening."""
        is_ours = outcome.reason == "user" or (outcome.status and outcome.reason is None)
        if facts.sweep is None or not is_ours:
            return False
        return os.path.exists(stop_path(self._folder_for(facts.job)))

    def _asked_for_more(self, job: int) -> bool:
        """Whether the job said `stoker.requeue()`; asking counts once."""
        try:
            os.unlink(requeue_path(self._folder_for(job)))
        except OSError:
            return False
        return True

    def _tail(self, facts: JobToJudge) -> bytes:
        tail = b""
        for path in (facts.stdout or self._log_for(facts.job, facts.attempts), facts.stderr):
            if path is not None:
                tail += self._tails.read(path)
        return tail

    def _was_killed_for_memory(self) -> bool:
        before, self._host_kills = self._host_kills, _out_of_memory_kills()
        return self._host_kills > before


def _out_of_memory_kills() -> int:
    """How often the kernel has killed a process of this host for lack of memory."""
    try:
        with open("/proc/vmstat", "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0
