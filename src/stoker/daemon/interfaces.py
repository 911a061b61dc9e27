"""Who works with the loop: somebody who starts processes, a clock, a host, somebody to tell."""

from __future__ import annotations

from stoker.core.model import Context, Outcome
from stoker.core.outcome.retry import Verdict
from stoker.core.record import Record
from stoker.supervisor.messages import Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # `typing` takes as long to load as all of this package


class Parent(Protocol):
    """Whoever starts processes for the loop."""

    def launch(self, order: Order, context: Context, lease: list[int]) -> None:
        """Start it. The descriptors of the lease become the parent's; they end with the attempt."""

    def stop(self, attempt: int, reason: str, grace: float | None) -> None: ...


class Clock(Protocol):
    def wall(self) -> float: ...
    def mono(self) -> float: ...


class Host(Record):
    cpu_slots: int
    boot: str


class EventListener:
    """Who wants to be told; the foreground run prints from here."""

    # Before the starts that an end has made room for, which wait for it then.
    wants_ends_first = False

    def starting(self, job: int, devices: tuple[int, ...]) -> None:
        """It is about to be started: whatever is written now comes before its own output."""

    def started(self, job: int, devices: tuple[int, ...]) -> None: ...
    def finished(self, job: int, outcome: Outcome, verdict: Verdict) -> None: ...
    def committed(self) -> None: ...
    def message(self, text: str) -> None: ...
