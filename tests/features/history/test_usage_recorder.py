"""A real usage recorder beside a real daemon with real jobs and a fake GPU driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from stoker.engine.devices.driver_client import sample_once
from stoker.engine.devices.sample_lines import encode
from stoker.engine.gpus.sample import Sample
from stoker.engine.supervisor import locks
from stoker.features.history.usage_charts import Series, gpu_trace, job_trace
from stoker.features.history.usage_recorder import TRACER_LOCK
from tests.engine.gpus.host import H200, GpuHost, hold_memory
from tests.fake_nvml import GIB
from tests.features.history.conftest import Recorder
from tests.lab import Lab, wait_until

MIB = 1 << 20
ALL = 1_000_000

Record = Callable[[Lab], Recorder]

# A process whose child runs in its own session and does the work.
WORK = """python3 -c '
import os
if os.fork():
    os.wait()
os.setsid()
block = bytearray(b"x" * (200 << 20))
while True: pass
'"""


def values(series: Series) -> list[float]:
    return [value for _, value in series.points if value is not None]


def trace(lab: Lab, job: int, name: str) -> list[float]:
    """All values of one series of a job."""
    found = job_trace(str(lab.state_dir), job, ALL)
    return values(found[name]) if name in found else []


def highest(lab: Lab, job: int, name: str) -> float:
    return max(trace(lab, job, name), default=0)


# -- jobs -----------------------------------------------------------------------------------------


def test_usage_of_a_job_includes_all_its_processes(quick_lab: Lab, record: Record) -> None:
    lab = quick_lab
    working = lab.submit("--gpus", "0", WORK)
    idle = lab.submit("--gpus", "0", "sleep 600")
    record(lab)
    wait_until(lambda: highest(lab, working, "memory") > 200 * MIB, what="memory")
    wait_until(lambda: highest(lab, working, "cpu") > 20, what="processor time")
    wait_until(lambda: highest(lab, idle, "memory") > 0, what="the other one")
    assert highest(lab, working, "memory") < 400 * MIB
    assert highest(lab, idle, "memory") < 20 * MIB
    found = job_trace(str(lab.state_dir), working, 50)
    assert sorted(found) == ["cpu", "memory"]
    assert (found["cpu"].unit, found["memory"].unit) == ("percent", "bytes")
    assert len(found["cpu"].points) <= 50
    times = [at for at, _ in found["memory"].points]
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 60


def test_readings_outlive_the_job_and_the_recorder(quick_lab: Lab, record: Record) -> None:
    lab = quick_lab
    job = lab.submit("--gpus", "0", "sleep 600")
    recorder = record(lab)
    wait_until(lambda: len(trace(lab, job, "memory")) > 5, what="readings")
    lab.ok("cancel", str(job))
    lab.wait(job)
    recorder.close()
    assert len(trace(lab, job, "memory")) > 5


def test_killed_recorder_loses_no_reading(quick_lab: Lab, record: Record) -> None:
    lab = quick_lab
    job = lab.submit("--gpus", "0", "sleep 600")
    for count in (5, 15, 25):
        record(lab)
        wait_until(partial(_has_more, lab, job, count), what=f"{count} readings")
        holder = locks.holder(str(lab.state_dir), TRACER_LOCK)
        seen = job_trace(str(lab.state_dir), job, ALL)["memory"].points
        assert holder is not None
        os.kill(holder, signal.SIGKILL)
        after = job_trace(str(lab.state_dir), job, ALL)["memory"].points
        assert after[: len(seen)] == seen


def _has_more(lab: Lab, job: int, count: int) -> bool:
    return len(trace(lab, job, "memory")) > count


def test_recording_continues_in_a_new_file_after_damage(quick_lab: Lab, record: Record) -> None:
    lab = quick_lab
    job = lab.submit("--gpus", "0", "sleep 600")
    (lab.state_dir / "traces.db").write_bytes(b"no database" * 1000)
    record(lab)
    wait_until(lambda: trace(lab, job, "memory"), what="readings")
    for name in ("traces.db", "traces.db-wal", "traces.db-shm"):
        (lab.state_dir / name).unlink(missing_ok=True)
    wait_until(lambda: trace(lab, job, "memory"), what="readings in a new file")
    assert lab.state(job) == "running"


# -- start and exit -------------------------------------------------------------------------------


def test_recorder_exits_when_stdin_is_closed(quick_lab: Lab, record: Record) -> None:
    quick_lab.submit("--gpus", "0", "sleep 600")
    recorder = record(quick_lab)
    assert recorder.hang_up() == 0
    assert recorder.errors() == ""


def test_recorder_exits_when_there_is_nothing_to_record(
    new_lab: Callable[..., Lab], record: Record
) -> None:
    lab = new_lab(devices=0, STOKER_TRACE_SECONDS="0.02")
    assert lab.wait(lab.submit("true")) == 0
    recorder = record(lab)
    assert recorder.process.wait() == 0


def test_second_recorder_waits_for_the_lock_and_takes_over(quick_lab: Lab, record: Record) -> None:
    lab = quick_lab
    job = lab.submit("--gpus", "0", "sleep 600")
    first = record(lab)
    second = record(lab)
    wait_until(lambda: trace(lab, job, "memory"), what="readings")
    wait_until(lambda: first.is_at_work() or second.is_at_work() or _is_kept(lab), what="one")
    first.close()
    assert second.process.poll() is None
    count = len(trace(lab, job, "memory"))
    wait_until(lambda: len(trace(lab, job, "memory")) > count + 3, what="more readings")


def _is_kept(lab: Lab) -> bool:
    """Whether the daemon's own recorder holds the lock."""
    return locks.holder(str(lab.state_dir), TRACER_LOCK) is not None


def test_recorder_without_a_queue_prints_an_error(tmp_path: Path, record: Record) -> None:
    lab = Lab(tmp_path)
    lab.state_dir.mkdir(mode=0o700)
    recorder = record(lab)
    assert recorder.process.wait() == 1
    errors = recorder.errors()
    assert (
        errors.startswith("error: the usage recorder cannot read the queue")
        and errors.count("\n") == 1
    )


# -- GPUs -----------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path, nvml_library: Path) -> Iterator[GpuHost]:
    """Two GPUs with 80 GiB."""
    made = GpuHost(tmp_path, nvml_library, H200, H200)
    yield made
    made.close()


def test_usage_of_gpus_and_of_jobs_on_them_is_recorded(host: GpuHost, record: Record) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.02")
    first, second = host.uuids
    host.fake.change(first, util=80, power=400_000, temp=60)
    host.fake.change(second, util=20, power=100_000, temp=40)
    gate = host.gate()
    pair = lab.start(gate, "--gpus", "2", size=5 * GIB)
    recorder = record(lab)
    folder = str(lab.state_dir)
    sample = sample_once(env={**os.environ, **lab.env})
    assert sample.gpus is not None

    def is_traced() -> bool:
        recorder.send(b"garbage\n" + encode(sample) + b"\n")
        # The daemon's own recorder may have a sample from before the job used its memory.
        return trace(lab, pair, "gpu_memory")[-1:] == [10 * GIB]

    wait_until(is_traced, what="GPU readings")
    gpu = gpu_trace(folder, first, 0, ALL)
    assert {name: (series.unit, values(series)[-1]) for name, series in gpu.items()} == {
        "gpu_use": ("percent", 80),
        "gpu_memory": ("bytes", 5 * GIB),
        "power": ("watts", 400),
        "temperature": ("celsius", 60),
    }
    assert values(gpu_trace(folder, second, 0, ALL)["power"])[-1] == 100
    job = job_trace(folder, pair, ALL)
    assert {name: values(job[name])[-1] for name in gpu} == {
        "gpu_use": 50, "gpu_memory": 10 * GIB, "power": 500, "temperature": 60,
    }  # fmt: skip
    assert "memory" in job


def test_jobs_on_a_shared_gpu_have_own_memory_and_part_of_the_power(
    host: GpuHost, record: Record
) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.02")
    host.fake.change(host.uuids[0], util=90, power=600_000)
    gate = host.gate()
    jobs = [lab.start(gate, "-M", "30G", "--gpu-ids", "0", size=size * GIB) for size in (7, 3)]
    recorder = record(lab)
    sample = sample_once(env={**os.environ, **lab.env})

    def is_traced() -> bool:
        recorder.send(encode(sample))
        return [trace(lab, job, "gpu_memory")[-1:] for job in jobs] == [[7 * GIB], [3 * GIB]]

    wait_until(is_traced, what="shares")
    assert [trace(lab, job, "power")[-1] for job in jobs] == [300, 300]
    assert [trace(lab, job, "gpu_use")[-1] for job in jobs] == [90, 90]


def test_recorder_survives_a_failing_driver(host: GpuHost, record: Record) -> None:
    lab = host.lab(STOKER_TRACE_SECONDS="0.02")
    job = lab.submit("--gpus", "0", hold_memory(host.gate(), 1))
    recorder = record(lab)
    recorder.send(encode(Sample(1.0, None, "the driver does not answer")))
    wait_until(lambda: trace(lab, job, "memory"), what="readings")
    assert recorder.process.poll() is None
