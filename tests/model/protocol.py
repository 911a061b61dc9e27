"""An explicit-state model of how one job is started, recorded, recovered and cancelled.

Every step that the daemon, the runner, the job and a user can take is a rule; crashes can come
between any two steps. `search` walks through all orders in which the steps can happen, breadth
first, so the first counterexample is a shortest one. A `Design` switches single decisions of the
protocol; the tests show that the model finds what is wrong with the bad ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

QUEUED, STARTING, RUNNING, STOPPING = "queued", "starting", "running", "stopping"
DONE, FAILED, CANCELLED, LOST = "done", "failed", "cancelled", "lost"
FINAL = (DONE, FAILED, CANCELLED, LOST)


@dataclass(frozen=True)
class Design:
    commits_before_order: bool = True  # the claim is in the books before the order is sent
    journals_before_spawn: bool = True
    drains_dead_daemons: bool = True  # all orders of a dead daemon, before the next is heard
    recovers_by_pid: bool = False  # alive is what has a recorded PID, as in PID-file designs
    records_orphans: bool = True  # an adopted orphan counts as begun when the journal goes
    restartable: bool = False
    daemon_crashes: int = 3
    runner_crashes: int = 1
    reboots: int = 1
    max_attempts: int = 4


class Attempt(NamedTuple):
    """The truth about one execution."""

    alive: bool
    status: int | None  # None: nobody could have seen it
    is_orphan: bool  # its runner is dead


class State(NamedTuple):
    # the books
    state: str = QUEUED
    attempt: int = 0
    has_pid: bool = False
    stop: bool = False
    code: int | None = None
    # the daemon: off, new (connected, not recovered), idle, claimed, sent
    daemon: str = "off"
    next_attempt: int = 1
    claimed: int = 0  # the attempt of its open transaction
    heard: tuple[tuple[str, int, int | None], ...] = ()  # on its way to the daemon
    # the runner: off, idle, or in the middle of a start or an end
    runner: str = "off"
    working_on: int = 0
    orders: tuple[tuple[str, int], ...] = ()  # of the connected daemon
    dead_orders: tuple[tuple[str, int], ...] = ()  # of daemons that died
    told_stop: tuple[int, ...] = ()
    # the world
    journal: tuple[tuple[str, int, int | None], ...] = ()
    attempts: tuple[Attempt, ...] = ()  # by spawn
    ids: tuple[int, ...] = ()  # the attempt ids of those
    # what may still go wrong
    daemon_crashes: int = 0
    runner_crashes: int = 0
    reboots: int = 0
    cancels: int = 1


Step = tuple[str, State]


def first(design: Design) -> State:
    return State(
        daemon_crashes=design.daemon_crashes,
        runner_crashes=design.runner_crashes,
        reboots=design.reboots,
    )
