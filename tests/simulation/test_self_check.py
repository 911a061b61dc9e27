"""A loop whose caches are out of date detects that and reads them again."""

from __future__ import annotations

from pathlib import Path
from random import Random

from stoker.core.model import Context, Device, JobSpec, Request
from stoker.store.database import open_database
from stoker.store.submit import Submission
from tests.simulation.daemon import SimDaemon, SimHost
from tests.simulation.world import World

SPEC = JobSpec(
    argv=("work",),
    context=Context("/", (), 0o022, "/bin/sh"),
    shell=False,
    request=Request(1),
)


def test_loop_that_missed_a_change_detects_it_and_starts_the_job(tmp_path: Path) -> None:
    world = World(Random(1))
    world.is_calm = True
    open_database(str(tmp_path)).close()
    host = SimHost(world, str(tmp_path), (Device(0, "0"),), cpu_slots=1)
    orders: list[int] = []
    host.on_order = lambda order: orders.append(order.job)
    daemon = SimDaemon(host)
    while not daemon.is_working or daemon.has_work():
        daemon.step()
    loop = daemon.loop
    assert loop.missed_starts() == []
    # A change on the daemon's own connection, which the loop does not detect.
    [job] = Submission(loop.db).add([SPEC], world.clock.wall()).ids
    loop.tick()
    assert orders == []
    assert [start.job for start in loop.missed_starts()] == [job]
    loop.queue_changed()
    loop.tick()
    loop.tick()
    assert orders == [job]
    assert loop.missed_starts() == []
    daemon.close()
