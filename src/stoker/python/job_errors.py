"""Exceptions that the result of a job may raise."""

from __future__ import annotations

from stoker.states import LOST


class JobFailed(Exception):
    """A job failed, and there is no exception of the job itself to raise.

    See `job`, `state`, `cause`, `exit_code`, `signal` and `log` (its last lines) for details.
    """

    def __init__(
        self,
        job: int,
        state: str,
        words: str,
        cause: str | None,
        exit_code: int | None,
        signal: int | None,
        log: tuple[str, ...],
    ) -> None:
        super().__init__(job, state, words, cause, exit_code, signal, log)
        self.job = job
        self.state = state
        self.words = words
        self.cause = cause
        self.exit_code = exit_code
        self.signal = signal
        self.log = log

    def __str__(self) -> str:
        text = f"job {self.job} {'was lost' if self.state == LOST else self.state}"
        text += f": {self.words}" if self.words else ""
        if self.log:
            text += "\nlast lines of its log:\n" + "\n".join(f"    {line}" for line in self.log)
        return text


class JobLost(JobFailed):
    """A job started and no longer runs, but its exit status is unknown."""


class RemoteTraceback(Exception):
    """The cause of an exception raised in a job: the traceback from the job."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
