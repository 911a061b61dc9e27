"""Jobs share a GPU as long as that increases the sum of their speeds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from tests.engine.gpus.host import H200, GpuHost, GpuLab, allocate
from tests.fake_nvml import GIB

# It reports as many steps in ten seconds as the file `rate` holds; the times are not real.
PROGRAM = f"""
{allocate(8 * GIB)}
step=0
at=$(date +%s)
until [ -e $1.end ]; do
  read rate < rate
  step=$((step + rate))
  at=$((at + 10))
  echo "{{\\"step\\": $step, \\"at\\": $at}}" >> "$STOKER_METRICS"
  sleep 0.1
done
"""


@pytest.fixture
def host(new_host: Callable[..., GpuHost]) -> GpuHost:
    """A host with one GPU of 80 GiB that computes."""
    host = new_host(H200)
    host.fake.change(host.uuids[0], util=50)
    return host


@pytest.fixture
def lab(host: GpuHost) -> GpuLab:
    lab = host.lab()
    (lab.folder / "train.sh").write_text(PROGRAM)
    _set_rate(lab, 100)
    return lab


def _set_rate(lab: GpuLab, rate: int) -> None:
    new = lab.folder / "rate.new"
    new.write_text(f"{rate}\n")
    new.rename(lab.folder / "rate")


def _submit(lab: GpuLab, number: int) -> int:
    return lab.submit("-M", "auto", "sh", "train.sh", str(number))


def _end(lab: GpuLab, *numbers: int) -> None:
    for number in numbers:
        (lab.folder / f"{number}.end").touch()


def _speeds(lab: GpuLab) -> dict[int, float]:
    connection = sqlite3.connect(lab.state_dir / "queue.db")
    try:
        return dict(connection.execute("SELECT jobs, speed FROM shared_speeds").fetchall())
    finally:
        connection.close()


def test_no_job_is_added_to_a_gpu_where_two_are_as_fast_as_one(lab: GpuLab) -> None:
    first = _submit(lab, 1)
    lab.wait_until(lambda: _speeds(lab).get(1) == pytest.approx(10.0))
    _set_rate(lab, 51)
    second = _submit(lab, 2)
    lab.wait_until(lambda: _speeds(lab).get(2) == pytest.approx(5.1))
    shown = lab.ok("show", str(first))
    assert "2 of these run at once on one GPU: 1.0 times the throughput" in shown
    third = _submit(lab, 3)
    lab.wait_until(lambda: "would not do more work" in lab.why(third))
    assert lab.state(third) == "queued"
    _end(lab, 1, 2)
    lab.wait_until(lambda: lab.state(third) == "running")
    _end(lab, 3)
    assert lab.wait(first, second, third) == 0


def test_jobs_are_added_while_the_sum_of_their_speeds_grows(lab: GpuLab) -> None:
    first = _submit(lab, 1)
    lab.wait_until(lambda: 1 in _speeds(lab))
    _set_rate(lab, 90)
    second = _submit(lab, 2)
    lab.wait_until(lambda: 2 in _speeds(lab))
    third = _submit(lab, 3)
    lab.wait_until(lambda: lab.state(third) == "running")
    assert "2 of these run at once on one GPU: 1.8 times" in lab.ok("show", str(first))
    _end(lab, 1, 2, 3)
    assert lab.wait(first, second, third) == 0


def test_saturated_gpu_takes_no_job_of_an_unknown_profile(host: GpuHost, lab: GpuLab) -> None:
    host.fake.change(host.uuids[0], util=100, power=690_000)
    first = _submit(lab, 1)
    lab.wait_until(lambda: lab.state(first) == "running")
    lab.wait_until(lambda: lab.job(first)["claim_bytes"] is not None)
    second = _submit(lab, 2)
    lab.wait_until(lambda: "would not do more work" in lab.why(second))
    assert lab.state(second) == "queued"
    _end(lab, 1)
    lab.wait_until(lambda: lab.state(second) == "running")
    _end(lab, 2)
    assert lab.wait(first, second) == 0
