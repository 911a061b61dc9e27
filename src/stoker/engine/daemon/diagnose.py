"""The cause of a failed attempt, from the end of its log."""

from __future__ import annotations

import os
from collections.abc import Callable

from stoker.engine.daemon.gpus.gpu_usage import GpuUse
from stoker.engine.daemon.log_tails import LogTails
from stoker.engine.model import Outcome
from stoker.engine.outcome.log_tail import last_error, last_exception
from stoker.engine.outcome.retry import REQUEUE_CODE
from stoker.engine.outcome.wait_status import exit_code_of
from stoker.engine.store.attempts import JobToJudge
from stoker.engine.supervisor.logs import requeue_path, stop_path
from stoker.text.activation import is_in_container
from stoker.text.sizes import format_size


class Diagnosis:
    def __init__(
        self, log_for: Callable[[int, int], str | None], folder_for: Callable[[int], str]
    ) -> None:
        self._log_for = log_for
        self._folder_for = folder_for
        self._tails = LogTails()

    def add_cause(
        self, outcome: Outcome, job: JobToJudge, use: GpuUse, largest_gpu: int = 0
    ) -> Outcome:
        """Return the outcome with its cause (`reason`), if one can be determined.

        `largest_gpu`: the memory of the largest GPU of this host; 0 if it is not known.
        """
        if self._was_stopped_early(outcome, job):
            return outcome._replace(reason="stopped_early")
        if not outcome.status or outcome.reason is not None or job.stop_requested:
            return outcome
        code = exit_code_of(outcome.status)
        in_container = is_in_container(job.settings.activation)
        if code == REQUEUE_CODE and self._requested_requeue(job.job):
            return outcome._replace(reason="requeue")
        from stoker.engine.outcome.failure_causes import (
            diagnose,  # compiles regular expressions, so it is imported only for failed jobs
        )

        tail = self._tail(job)
        found = diagnose(
            tail,
            code,
            gpu_was_full=use.was_full,
            in_container=in_container,
        )
        if found is None:
            # Only sweeps compare failures by the last line of their logs.
            last = last_error(tail) if job.sweep is not None else None
            return outcome._replace(last_error=last, exception=last_exception(tail))
        cause, evidence = found
        outcome = outcome._replace(reason=cause, detail=evidence)
        return with_needed_memory(outcome, tail, largest_gpu) if cause == "gpu_oom" else outcome

    def _was_stopped_early(self, outcome: Outcome, job: JobToJudge) -> bool:
        """Whether a trial ended because its sweep requested it, or killed it after that."""
        may_be_stopped = outcome.reason == "user" or (outcome.status and outcome.reason is None)
        if job.sweep is None or not may_be_stopped:
            return False
        return os.path.exists(stop_path(self._folder_for(job.job)))

    def _requested_requeue(self, job: int) -> bool:
        """Whether the job called `stoker.requeue()`; the request is consumed."""
        try:
            os.unlink(requeue_path(self._folder_for(job)))
        except OSError:
            return False
        return True

    def _tail(self, job: JobToJudge) -> bytes:
        tail = b""
        for path in (job.stdout or self._log_for(job.job, job.attempts), job.stderr):
            if path is not None:
                tail += self._tails.read(path)
        return tail


def with_needed_memory(outcome: Outcome, tail: bytes, largest_gpu: int) -> Outcome:
    """Add what the message of a job that ran out of GPU memory says about its need."""
    from stoker.engine.outcome.oom_message import parse_oom

    message = parse_oom(tail)
    if message is None:
        return outcome
    outcome = outcome._replace(needed_gpu_memory=message.enough)
    if not 0 < largest_gpu < message.least:
        return outcome
    detail = (
        f"it asked for {format_size(message.least)} on one GPU, and the largest GPU of this host"
        f" has {format_size(largest_gpu)}: {outcome.detail}"
    )
    return outcome._replace(exceeds_gpus=True, detail=detail)
