"""What the loop needs from its host: a parent for jobs, a clock, host facts, a listener."""

from __future__ import annotations

from stoker.engine.model import UNCOUNTED, Context, HostResources, Outcome, ReadyJob
from stoker.engine.outcome.retry import Verdict
from stoker.engine.supervisor.messages import AttemptStarted, Order
from stoker.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # `typing` takes as long to import as this whole package


class Parent(Protocol):
    """Starts and stops the processes of jobs."""

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        """Start an attempt. The parent owns the lease's descriptors until the attempt has ended."""

    def stop(self, attempt: int, reason: str, grace: float | None) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds (None: the grace period of the job)."""

    def pause(self, attempt: int, seconds: float) -> None:
        """Stop all its processes with SIGSTOP; after `seconds` they continue in any case."""

    def resume(self, attempt: int) -> None:
        """Continue the processes of an attempt that was paused."""


class OrderHook(Protocol):
    """What a feature does when jobs start.

    `ORDER_HOOKS` of stoker.features has the classes. They are made with the database and the folder
    of a backend's chunk, which is None unless a worker starts the jobs.
    """

    def complete(self, order: Order, job: ReadyJob, now: float) -> Order:
        """The order with what the feature adds; `now` is monotonic."""

    def started(self, event: AttemptStarted) -> None:
        """An attempt has started; its start may be recorded again after an error."""


class Clock(Protocol):
    def wall(self) -> float: ...
    def mono(self) -> float: ...


class Host(Record):
    cpu_slots: int
    boot: str
    leases_ports: bool = True  # for jobs with several GPUs
    resources: HostResources = UNCOUNTED


class EventListener:
    """Receives the events of the loop; a foreground run prints them."""

    # Report ends before the starts that they make room for; the starts wait for that.
    wants_ends_first = False

    def starting(self, job: int, devices: tuple[int, ...]) -> None:
        """A job is about to start: output written now comes before the job's output."""

    def ordered(self, job: int, devices: tuple[int, ...]) -> None:
        """The order to start a job was sent to the parent."""

    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None: ...
    def trial_ended(self, job: int) -> None:
        """An attempt of a sweep's trial has ended; called after `finished`."""

    def code_changed(self, job: int, files: str) -> None:
        """A job has started with other code than at its submit."""

    def committed(self) -> None: ...
    def message(self, text: str) -> None: ...
