"""What every driver must do (engine/devices/driver.py). A new vendor gets a row in `rows`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from stoker.engine.devices.device_names import visible_names
from stoker.engine.devices.driver import DRIVERS
from stoker.engine.devices.sample_lines import decode, encode
from stoker.engine.gpus.sample import GpuSample, Sample
from stoker.record import Record
from tests.engine.devices import driver_calls
from tests.fake_nvml import FakeNvml


class Row(Record):
    """A driver on a host with three GPUs."""

    driver: str
    argument: object  # of its constructor
    library: str | None  # the Python package that it loads
    env: Mapping[str, str] = {}


def nvidia(fake: FakeNvml) -> Row:
    fake.set_gpus("NVIDIA H100", "NVIDIA A100", "NVIDIA A100")
    return Row("stoker.engine.devices.nvidia:NvidiaDriver", 1.0, "pynvml", fake.env())


def simulated(fake: FakeNvml) -> Row:
    return Row("stoker.engine.devices.simulated:SimulatedDriver", "0,1,1,2+3", None)


rows = (nvidia, simulated)
Call = Callable[[Callable[..., Any]], Any]


@pytest.fixture(params=rows)
def row(request: pytest.FixtureRequest, fake: FakeNvml) -> Row:
    made: Row = request.param(fake)
    return made


@pytest.fixture
def call(row: Row) -> Call:
    env = os.environ | dict(row.env)
    return lambda function: driver_calls.result_of(function, row.driver, row.argument, env)


def identity(gpus: tuple[GpuSample, ...]) -> list[object]:
    return [(gpu.uuid, gpu.number, gpu.visible, gpu.model, gpu.pci, gpu.total) for gpu in gpus]


def test_every_vendor_has_a_row(fake: FakeNvml) -> None:
    assert set(DRIVERS) <= {make(fake).driver for make in rows}


def test_gpus_are_named_and_keep_their_names(call: Call) -> None:
    first, *others = call(driver_calls.samples)
    assert [gpu.number for gpu in first] == [0, 1, 2]
    assert len({gpu.uuid for gpu in first if gpu.uuid}) == 3
    assert all(visible_names(gpu.visible) == gpu.visible != "" for gpu in first)
    assert all(gpu.model and gpu.error is None for gpu in first)
    assert [identity(gpus) for gpus in others] == [identity(first)] * 2


def test_memory_is_in_bytes(call: Call) -> None:
    for gpu in call(driver_calls.samples)[0]:
        assert 0 <= gpu.used + gpu.reserved <= gpu.total
        assert gpu.total > 1 << 30


def test_gpus_survive_being_sent_to_the_daemon(call: Call) -> None:
    sample = Sample(1.0, call(driver_calls.samples)[0])
    assert decode(encode(sample)) == sample


def test_slow_readings_are_due_once_and_part_of_the_next_sample(call: Call) -> None:
    due, due_again, gpus = call(driver_calls.due_readings)
    assert due_again == 0
    has_readings = {gpu.power is not None and gpu.utilisation is not None for gpu in gpus}
    assert has_readings == {due > 0}


def test_faults_are_returned_once(call: Call) -> None:
    assert call(driver_calls.faults) == [(), ()]


def test_driver_can_be_closed_twice(call: Call) -> None:
    assert call(driver_calls.closed_twice)


def test_looking_for_a_driver_loads_no_library(call: Call, row: Row) -> None:
    assert not {row.library, "ctypes"} & call(driver_calls.imports_of_detection)
