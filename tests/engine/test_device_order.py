"""Devices that fit equally well are used in list order."""

from __future__ import annotations

from stoker.engine.model import Device, Request, Snapshot, WaitingJob
from stoker.engine.policy.decide import decide


def test_devices_that_are_equally_free_are_used_as_they_are_listed() -> None:
    devices = tuple(Device(number, str(number)) for number in (2, 0, 1))
    waiting = tuple(WaitingJob(id, 0, Request(gpus=1)) for id in (1, 2, 3))
    starts = decide(Snapshot(0.0, devices, 0, (), waiting)).starts
    assert [start.devices for start in starts] == [(2,), (0,), (1,)]
