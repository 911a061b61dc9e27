"""The state machine of the loop: when a tick is needed, and when a timer is due."""

from __future__ import annotations

from stoker.engine.daemon.interfaces import Clock

# Waiting times and overdue jobs change a decision without any event.
DECIDE_AGAIN_SECONDS = 1.0
_REFUSED_SECONDS = 1.0
MAX_PAUSE_SECONDS = 10.0  # between two attempts to start a job on a host that refuses


class LoopState:
    """The flags and timers of the loop. Times are monotonic, except `due_at`.

    field         set when                                       cleared when
    ------------  ---------------------------------------------  ------------------------------
    is_stale      the queue changed in a way the loop did not    the queue is read again
                  follow, or a tick was rolled back
    may_start     a device, a job or a limit changed, so a       a decision was made
                  decision may start something
    claims_wait   claims need attempt ids, which may be used     jobs are claimed again
                  after the commit of this tick
    decide_at     jobs wait: waiting times and overdue jobs      a decision is made, or no job
                  change a decision without an event          waits
    retry_at      the database could not be written              the next tick begins
    paused_until  the host refused to start a process, or a      jobs are claimed again
                  backend may be about to end this worker
    due_at        a delayed job becomes ready (wall clock)       the queue is read again
    seen_version  the queue was read (`PRAGMA data_version`)     -
    refusals      the host refused to start a process (count)    a process started
    """

    __slots__ = (
        "claims_wait",
        "decide_at",
        "due_at",
        "is_stale",
        "may_start",
        "paused_until",
        "refusals",
        "retry_at",
        "seen_version",
    )

    def __init__(self, refusals: int) -> None:
        self.is_stale = True
        self.may_start = True
        self.claims_wait = False
        self.decide_at: float | None = None
        self.retry_at: float | None = None
        self.paused_until = 0.0
        self.due_at: float | None = None
        self.seen_version: int | None = None
        self.refusals = refusals

    def needs_tick(self, clock: Clock) -> bool:
        """Whether a tick has work, apart from events and changes by other processes."""
        return bool(
            self.is_stale
            or self.claims_wait
            or (self.due_at is not None and self.due_at <= clock.wall())
            or (self.may_start and self.paused_until <= clock.mono())
        )

    def next_wake(self, clock: Clock) -> float | None:
        """When a tick is due even without an event (monotonic)."""
        if self.retry_at is not None:
            return self.retry_at  # nothing can be done before
        now = clock.mono()
        times = [now] if self.is_stale or self.claims_wait else []
        if self.decide_at is not None:
            times.append(self.decide_at)
        if self.paused_until > now:
            times.append(self.paused_until)
        if self.due_at is not None:
            times.append(now + max(0.0, self.due_at - clock.wall()))
        return min(times, default=None)

    def start_was_refused(self, now: float) -> None:
        """Pause starts: one second, then twice as long each time."""
        self.refusals += 1
        pause = min(_REFUSED_SECONDS * 2 ** min(self.refusals - 1, 10), MAX_PAUSE_SECONDS)
        self.paused_until = now + pause
