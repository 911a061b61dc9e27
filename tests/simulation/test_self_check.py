"""A loop whose caches are out of date, or whose wall clock was set, reads the queue again."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from stoker.engine.daemon.idle_check import IdleCheck
from stoker.engine.job_settings import JobSettings
from stoker.engine.model import Context, Device, JobSpec, Outcome, Request
from stoker.engine.store.database import open_database
from stoker.engine.store.idle_counts import idle_count
from stoker.engine.store.submit import Submission
from stoker.engine.supervisor.messages import Order
from tests.simulation.daemon import SimDaemon, SimHost
from tests.simulation.world import World

SPEC = JobSpec(
    argv=("work",),
    context=Context("/", (), 0o022, "/bin/sh"),
    shell=False,
    request=Request(1),
)


def a_daemon(folder: Path, orders: list[Order]) -> SimDaemon:
    """A daemon that waits for work; `orders` receives what it starts."""
    world = World(Random(1))
    world.is_calm = True
    open_database(str(folder)).close()
    host = SimHost(world, str(folder), (Device(0, "0"),), cpu_slots=1)
    host.on_order = orders.append
    daemon = SimDaemon(host)
    while not daemon.is_working or daemon.has_work():
        daemon.step()
    return daemon


def test_loop_that_missed_a_change_detects_it_and_starts_the_job(tmp_path: Path) -> None:
    orders: list[Order] = []
    daemon = a_daemon(tmp_path, orders)
    loop, world = daemon.loop, daemon.world
    assert loop.missed_starts() == []
    # A change on the daemon's own connection, which the loop does not detect.
    [job] = Submission(loop.db).add([SPEC], world.clock.wall()).ids
    loop.tick()
    assert orders == []
    check = IdleCheck(loop, world.clock)
    world.clock.jump(30 * 365 * 86400.0)
    world.clock.advance(5.0)
    assert [start.job for start in check.missed_starts()] == [job]
    assert idle_count(loop.db).seconds == 5.0
    loop.queue_changed()
    loop.tick()
    loop.tick()
    assert [order.job for order in orders] == [job]
    assert loop.missed_starts() == []
    daemon.close()


@pytest.mark.parametrize("jump", [-3600.0, 30 * 365 * 86400.0])
def test_delay_of_a_retry_stays_as_long_when_the_wall_clock_is_set(
    tmp_path: Path, jump: float
) -> None:
    orders: list[Order] = []
    daemon = a_daemon(tmp_path, orders)
    loop, clock = daemon.loop, daemon.world.clock
    user = open_database(str(tmp_path))
    Submission(user).add([SPEC._replace(settings=JobSettings(retries=1))], clock.wall())
    user.close()
    loop.tick()
    loop.tick()
    loop.receive([Outcome(attempt=orders[0].attempt, status=256, ended_at=clock.wall())])
    loop.tick()
    due = loop.next_wake()
    assert due is not None and due > clock.mono()
    clock.jump(jump)
    loop.tick()
    assert len(orders) == 1 and loop.next_wake() == pytest.approx(due)
    clock.advance(due - clock.mono())
    loop.tick()
    loop.tick()
    assert len(orders) == 2
    daemon.close()
