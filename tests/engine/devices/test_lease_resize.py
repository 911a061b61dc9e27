"""The amount of a lease changes while its jobs run."""

from __future__ import annotations

import os
import select
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.engine.devices.leases.holders import DeviceClaim
from stoker.engine.devices.leases.lease import Lease, Waiter, first_waiters, holders, try_take
from stoker.engine.devices.leases.resize import resize
from tests.lab import wait_until

GIB = 1 << 30
TOTAL = 80 * GIB
PLACE = [("GPU-0", "", False)]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    above = Path(tempfile.mkdtemp(prefix="stoker-test-", dir="/tmp"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(above / "leases"))
    yield above
    shutil.rmtree(above)


@pytest.fixture
def new_waiter() -> Iterator[Callable[[DeviceClaim], Waiter]]:
    made: list[Waiter] = []

    def make(claim: DeviceClaim) -> Waiter:
        made.append(Waiter([claim]))
        wait_until(lambda: bool(first_waiters(PLACE)), what="the waiter")
        return made[-1]

    yield make
    for waiter in made:
        waiter.cancel()


def _claim(amount: int | None) -> DeviceClaim:
    return DeviceClaim("GPU-0", "", False, TOTAL, amount)


def _take(amount: int | None) -> Lease:
    lease = try_take([_claim(amount)])
    assert lease is not None
    return lease


def _amounts() -> list[int | None]:
    return sorted((one.amount for one in holders(PLACE)), key=lambda amount: amount or 0)


def test_whole_gpu_becomes_a_part_that_others_can_share() -> None:
    lease = _take(None)
    assert try_take([_claim(20 * GIB)]) is None
    assert resize(lease.descriptors[0], _claim(30 * GIB))
    assert _amounts() == [30 * GIB]
    assert try_take([_claim(None)]) is None
    assert try_take([_claim(50 * GIB + 1)]) is None
    other = _take(50 * GIB)
    assert _amounts() == [30 * GIB, 50 * GIB]
    other.close()
    lease.close()
    assert _amounts() == []


def test_amount_grows_and_shrinks_beside_other_holders() -> None:
    first, other, lease = _take(10 * GIB), _take(20 * GIB), _take(30 * GIB)
    assert resize(lease.descriptors[0], _claim(40 * GIB))
    assert _amounts() == [10 * GIB, 20 * GIB, 40 * GIB]
    assert try_take([_claim(10 * GIB + 1)]) is None
    assert resize(lease.descriptors[0], _claim(5 * GIB))
    assert _amounts() == [5 * GIB, 10 * GIB, 20 * GIB]
    for one in (first, other, lease):
        one.close()


def test_copy_of_a_descriptor_changes_the_lease_of_all_copies() -> None:
    lease = _take(None)
    copy = os.dup(lease.descriptors[0])
    assert resize(copy, _claim(30 * GIB))
    lease.close()
    assert _amounts() == [30 * GIB]
    os.close(copy)
    assert _amounts() == []


def test_lease_stays_whole_while_another_process_waits_for_the_whole_gpu(
    new_waiter: Callable[[DeviceClaim], Waiter],
) -> None:
    lease = _take(None)
    waiter = new_waiter(_claim(None))
    assert not resize(lease.descriptors[0], _claim(30 * GIB))
    assert _amounts() == [None]
    lease.close()
    wait_until(lambda: _amounts() == [None], what="the lease of the waiter")
    assert waiter.pid


def test_process_that_waits_for_a_part_gets_it_when_the_lease_shrinks(
    new_waiter: Callable[[DeviceClaim], Waiter],
) -> None:
    lease = _take(None)
    waiter = new_waiter(_claim(20 * GIB))
    assert resize(lease.descriptors[0], _claim(30 * GIB))
    wait_until(lambda: _amounts() == [20 * GIB, 30 * GIB], what="the lease of the waiter")
    select.select([waiter], [], [])
    received = waiter.take()
    assert received is not None
    received.close()
    lease.close()


def test_memory_in_use_is_recorded_even_if_others_hold_too_much() -> None:
    lease, other = _take(30 * GIB), _take(50 * GIB)
    assert resize(lease.descriptors[0], _claim(40 * GIB))
    assert _amounts() == [40 * GIB, 50 * GIB]
    lease.close()
    other.close()
