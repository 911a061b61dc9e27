"""Samples of the driver process: the real nvidia-ml-py with a fake library."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from stoker.engine.devices.driver_process import IDLE_SECONDS
from stoker.engine.devices.sample_lines import decode, encode
from stoker.engine.gpus.sample import GpuFault, GpuProcess, GpuSample, Sample
from tests.engine.devices.timed_driver import TimedDriver
from tests.fake_nvml import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GIB,
    LIBRARY_MISMATCH,
    MIB,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    FakeNvml,
)
from tests.lab import HANG_SECONDS

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
_DRIVER_PROCESS = [sys.executable, "-m", "stoker.engine.devices.driver_process"]


class Running:
    """A driver process that the test sends requests to."""

    def __init__(self, fake: FakeNvml, *options: str) -> None:
        self.process = subprocess.Popen(
            [*_DRIVER_PROCESS, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | fake.env(),
            bufsize=0,
        )
        assert self.process.stdin and self.process.stdout
        self._requests, self._answers = self.process.stdin, self.process.stdout

    def send(self, request: bytes) -> None:
        self._requests.write(request)

    def next_sample(self) -> Sample:
        assert select.select([self._answers], [], [], HANG_SECONDS)[0], (
            "the driver process sent nothing"
        )
        return decode(self._answers.readline())

    def now(self) -> Sample:
        requested_at = time.monotonic()
        self.send(b"n")
        while (sample := self.next_sample()).at < requested_at:
            pass
        return sample

    def until(self, condition: Callable[[Sample], object]) -> Sample:
        """Request samples until one meets the condition, and return it."""
        end = time.monotonic() + HANG_SECONDS
        while not condition(sample := self.now()):
            assert time.monotonic() < end, sample
        return sample

    def next_sample_with_gpus(self) -> Sample:
        """Wait, without a request, until the driver can be read again."""
        while (sample := self.next_sample()).gpus is None:
            pass
        return sample

    def close(self) -> None:
        with self.process:
            self.process.kill()


@pytest.fixture
def start(fake: FakeNvml) -> Iterator[Callable[..., Running]]:
    processes_started: list[Running] = []

    def make(*options: str) -> Running:
        processes_started.append(Running(fake, *options))
        return processes_started[-1]

    yield make
    for watcher in processes_started:
        watcher.close()


@pytest.fixture
def running(start: Callable[..., Running]) -> Running:
    return start()


@pytest.fixture
def timed_driver(fake: FakeNvml) -> Iterator[TimedDriver]:
    made = TimedDriver(fake)
    yield made
    made.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def once(fake: FakeNvml) -> Sample:
    words = [*_DRIVER_PROCESS, "--once"]
    done = subprocess.run(words, env=os.environ | fake.env(), stdout=subprocess.PIPE)
    assert done.returncode == 0
    return decode(done.stdout)


def gpus(sample: Sample) -> tuple[GpuSample, ...]:
    assert sample.gpus is not None, sample.error
    return sample.gpus


# -- GPUs ------------------------------------------------------------------------------------------


def test_eight_gpus_of_two_models_come_in_the_order_of_the_bus(fake: FakeNvml) -> None:
    uuids = fake.set_gpus(*[H100] * 4, *[A100] * 4)
    fake.reverse()
    sample = once(fake)
    assert [gpu.uuid for gpu in gpus(sample)] == uuids
    assert [gpu.number for gpu in gpus(sample)] == list(range(8))
    assert [gpu.visible for gpu in gpus(sample)] == list("01234567")
    assert [gpu.model for gpu in gpus(sample)] == [H100] * 4 + [A100] * 4
    assert sample.error is None and sample.faults == ()


def test_gpu_is_described_in_plain_units(fake: FakeNvml) -> None:
    [uuid] = fake.set_gpus(H100)
    fake.change(uuid, pci="0000:C1:00.0", used=3 * GIB, util=93, power=412_345, temp=61)
    fake.change(uuid, energy=1_234_500, ecc=2)
    expected = GpuSample(
        uuid, 0, "0", H100, "0000:c1:00.0", 80 * GIB, 600 * MIB, 3 * GIB, None,
        93, 412.345, 61, 1234.5, 2, power_limit=700.0,
    )  # fmt: skip
    [gpu] = gpus(once(fake))
    assert gpu.load_at is not None and gpu.load_at <= time.monotonic()
    assert gpu == expected._replace(load_at=gpu.load_at)


def test_domain_beyond_four_digits_comes_last_and_keeps_its_name(fake: FakeNvml) -> None:
    first, second = fake.set_gpus(H100, H100)
    fake.change(first, pci="10000:01:00.0")
    fake.change(second, pci="2000:01:00.0")
    assert [gpu.pci for gpu in gpus(once(fake))] == ["2000:01:00.0", "10000:01:00.0"]


def test_readings_that_a_gpu_lacks_are_none(fake: FakeNvml) -> None:
    fake.set_gpus(A100, util=-1, power=-1, temp=-1, energy=-1, ecc=-1, mig=-1)
    [gpu] = gpus(once(fake))
    assert gpu[9:14] == (None,) * 5
    assert gpu.error is None and gpu.total == 80 * GIB


def test_driver_without_gpus_is_not_an_error(fake: FakeNvml) -> None:
    assert once(fake)[1:] == ((), None, ())


def test_older_driver_counts_reserved_memory_as_used(fake: FakeNvml) -> None:
    fake.set_gpus(H100, used=GIB)
    fake.fail("nvmlDeviceGetMemoryInfo_v2", FUNCTION_NOT_FOUND)
    [gpu] = gpus(once(fake))
    assert (gpu.total, gpu.reserved, gpu.used) == (80 * GIB, 0, GIB + 600 * MIB)


def test_gpu_without_memory_of_its_own_is_not_an_error(fake: FakeNvml) -> None:
    fake.set_gpus("NVIDIA GB10")
    fake.fail("nvmlDeviceGetMemoryInfo_v2", NOT_SUPPORTED)
    fake.fail("nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)
    [gpu] = gpus(once(fake))
    assert (gpu.total, gpu.used, gpu.error) == (0, 0, None)


def test_slices_take_the_place_of_their_gpu(fake: FakeNvml) -> None:
    whole, divided, other = fake.set_gpus(A100, A100, A100)
    first, second = fake.slices(divided, f"{A100} MIG 1g.5gb", f"{A100} MIG 3g.20gb")
    fake.add_process(second, os.getpid(), 2 * GIB)
    sample = once(fake)
    assert [(gpu.uuid, gpu.number, gpu.visible, gpu.slice_of) for gpu in gpus(sample)] == [
        (whole, 0, "0", None),
        (other, 2, "2", None),
        (first, 3, first, divided),
        (second, 4, second, divided),
    ]
    *_, empty, used = gpus(sample)
    assert empty.model.endswith("1g.5gb") and empty.total == 10 * GIB
    assert empty.pci == used.pci == "0000:2b:00.0"
    assert (empty.used, empty.processes) == (0, ())
    assert (used.used, used.processes) == (2 * GIB, (GpuProcess(os.getpid(), 2 * GIB, True),))
    assert used[9:14] == (None,) * 5


# -- processes -------------------------------------------------------------------------------------


def test_process_is_listed_until_it_dies(
    fake: FakeNvml, running: Running, sleeper: subprocess.Popen[bytes]
) -> None:
    uuid, _ = fake.set_gpus(H100, H100)
    fake.add_process(uuid, sleeper.pid, 5 * GIB)
    first, second = gpus(running.until(lambda sample: gpus(sample)))
    assert first.processes == (GpuProcess(sleeper.pid, 5 * GIB, True),)
    assert (first.used, second.used, second.processes) == (5 * GIB, 0, ())
    sleeper.kill()
    running.until(lambda sample: not gpus(sample)[0].processes)
    # A new sample: the process may have died between the two readings of the last one.
    assert gpus(running.now())[0].used == 0


def test_job_can_claim_memory_by_itself(fake: FakeNvml, running: Running) -> None:
    _, uuid = fake.set_gpus(H100, A100)
    fake.reverse()
    claim = f'echo "1 7000" > "$FAKE_NVML_PROCS/$$"; echo "{uuid} 500" >> "$FAKE_NVML_PROCS/$$"'
    words = ["sh", "-c", f"{claim}; exec sleep 600"]
    with subprocess.Popen(words, env=os.environ | fake.env()) as job:
        sample = running.until(lambda sample: gpus(sample)[1].used == 7500)
        assert {process.pid for process in gpus(sample)[1].processes} == {job.pid}
        assert gpus(sample)[0].used == 0
        job.kill()
        running.until(lambda sample: gpus(sample)[1].used == 0)


def test_dead_process_whose_children_hold_its_memory_stays_listed(fake: FakeNvml) -> None:
    [uuid] = fake.set_gpus(H100)
    with subprocess.Popen(["true"]) as process:
        pass
    fake.add_process(uuid, process.pid, GIB, sticky=True)
    [gpu] = gpus(once(fake))
    assert gpu.processes == (GpuProcess(process.pid, GIB, True),)
    assert gpu.used == GIB


def test_display_processes_and_hidden_memory_are_distinguished(fake: FakeNvml) -> None:
    [uuid] = fake.set_gpus(H100)
    fake.add_process(uuid, 11, 100, "graphics", sticky=True)
    fake.add_process(uuid, 13, None, "compute", sticky=True)
    fake.add_process(uuid, 12, 300, "both", sticky=True)
    [gpu] = gpus(once(fake))
    assert gpu.processes == (
        GpuProcess(11, 100, False),
        GpuProcess(12, 300, True),
        GpuProcess(13, None, True),
    )


def test_older_process_lists_serve_as_well(fake: FakeNvml) -> None:
    [uuid] = fake.set_gpus(H100)
    fake.add_process(uuid, 11, 100, "both", sticky=True)
    fake.fail("nvmlDeviceGetComputeRunningProcesses_v3", FUNCTION_NOT_FOUND)
    fake.fail("nvmlDeviceGetGraphicsRunningProcesses_v3", NO_PERMISSION)
    fake.fail("nvmlDeviceGetGraphicsRunningProcesses_v2", NO_PERMISSION)
    [gpu] = gpus(once(fake))
    assert (gpu.processes, gpu.error) == ((GpuProcess(11, 100, True),), None)


def test_all_of_very_many_processes_are_listed(fake: FakeNvml) -> None:
    [uuid] = fake.set_gpus(H100)
    for pid in range(1, 201):
        fake.add_process(uuid, pid, 1, sticky=True)
    [gpu] = gpus(once(fake))
    assert [process.pid for process in gpu.processes] == list(range(1, 201))
    assert gpu.used == 200


# -- GPUs that come, go and break ------------------------------------------------------------------


def test_lost_gpu_keeps_its_fields_until_it_is_back(
    fake: FakeNvml, timed_driver: TimedDriver
) -> None:
    first, second = fake.set_gpus(H100, A100, util=50)
    before = gpus(timed_driver.sample(100.0))
    fake.lose(first)
    fake.change(second, used=GIB)
    lost, other = gpus(timed_driver.sample(100.5))
    assert lost.error == "GPU is lost"
    assert lost[:7] == before[0][:7]
    assert (lost.utilisation, lost.processes) == (None, ())
    assert (other.error, other.used, other.number) == (None, GIB, 1)
    fake.find(first)
    back, _ = gpus(timed_driver.sample(131.0))
    assert back.error is None
    [back, _] = gpus(timed_driver.sample(131.5))
    assert back.utilisation == 50


def test_gpu_that_needs_a_reset_says_so(fake: FakeNvml, timed_driver: TimedDriver) -> None:
    uuid, _ = fake.set_gpus(H100, H100)
    fake.fail("nvmlDeviceGetMemoryInfo_v2", RESET_REQUIRED, uuid)
    for now in (1.0, 1.5):
        gpu, other = gpus(timed_driver.sample(now))
        assert (gpu.error, other.error) == ("GPU needs a reset", None)
    fake.fail("nvmlDeviceGetMemoryInfo_v2", 0, uuid)
    assert gpus(timed_driver.sample(2.0))[0].error is None


def test_slices_of_a_lost_gpu_have_an_error(fake: FakeNvml, timed_driver: TimedDriver) -> None:
    _, divided = fake.set_gpus(A100, A100)
    fake.slices(divided, "1g.5gb", "1g.5gb")
    before = gpus(timed_driver.sample(1.0))
    fake.lose(divided)
    sample = gpus(timed_driver.sample(1.5))
    assert [gpu.error for gpu in sample] == [None, "GPU is lost", "GPU is lost"]
    assert [gpu[:5] for gpu in sample] == [gpu[:5] for gpu in before]


def test_gpu_lost_before_the_start_leaves_a_gap(fake: FakeNvml) -> None:
    _, lost, _ = fake.set_gpus(H100, H100, H100)
    fake.lose(lost)
    sample = once(fake)
    assert [gpu.number for gpu in gpus(sample)] == [0, 2]
    assert sample.error == "GPU 1 cannot be opened: GPU is lost"


def test_gpu_that_was_added_or_removed_is_noticed(
    fake: FakeNvml, timed_driver: TimedDriver
) -> None:
    first, second = fake.set_gpus(H100, A100)
    fake.remove(second)
    assert len(gpus(timed_driver.sample(1.0))) == 1
    uuids = fake.set_gpus(H100, A100, A100)
    assert [gpu.uuid for gpu in gpus(timed_driver.sample(31.0))] == uuids
    fake.remove(first)
    [gpu, _] = gpus(timed_driver.sample(31.5))  # its handle fails, so it is noticed at once
    assert (gpu.uuid, gpu.number) == (uuids[1], 0)


def test_repartitioned_gpu_shows_its_new_slices(fake: FakeNvml, timed_driver: TimedDriver) -> None:
    [uuid] = fake.set_gpus(A100)
    fake.slices(uuid, "3g.20gb", "3g.20gb")
    assert len(gpus(timed_driver.sample(1.0))) == 2
    fake.slices(uuid, "7g.40gb")
    [gpu] = gpus(timed_driver.sample(1.5))
    assert (gpu.model, gpu.error) == ("7g.40gb", None)


def test_error_of_a_gpu_is_reported_once(fake: FakeNvml, timed_driver: TimedDriver) -> None:
    _, second = fake.set_gpus(H100, H100)
    fake.xid(second, 13)
    assert timed_driver.sample(1.0).faults == ()  # it happened before the process registered
    fake.xid(second, 79)
    fake.xid(second, 48)
    assert timed_driver.sample(1.5).faults == (
        GpuFault(second, "Xid 79"),
        GpuFault(second, "Xid 48"),
    )
    assert timed_driver.sample(2.0).faults == ()
    fake.xid(second, 79)
    fake.lose(second)
    assert timed_driver.sample(2.5).faults == (GpuFault(second, "Xid 79"),)


def test_error_is_assigned_to_its_slice(fake: FakeNvml, timed_driver: TimedDriver) -> None:
    [uuid] = fake.set_gpus(A100)
    _, second = fake.slices(uuid, "3g.20gb", "3g.20gb")
    timed_driver.sample(1.0)
    fake.xid(uuid, 13, instance=8)
    fake.xid(uuid, 79)
    assert timed_driver.sample(1.5).faults == (
        GpuFault(second, "Xid 13", is_harmless=True),
        GpuFault(uuid, "Xid 79"),
    )


def test_gpus_without_error_events_are_sampled_too(fake: FakeNvml) -> None:
    fake.set_gpus(H100)
    fake.fail("nvmlDeviceRegisterEvents", NOT_SUPPORTED)
    assert once(fake).error is None
    fake.fail("nvmlEventSetCreate", NOT_SUPPORTED)
    assert once(fake).error is None


def test_slow_readings_are_rare_and_constants_are_read_once(
    fake: FakeNvml, timed_driver: TimedDriver
) -> None:
    [uuid] = fake.set_gpus(H100, util=1)
    for half_seconds in range(24):
        timed_driver.sample(half_seconds / 2)
    assert fake.calls("nvmlDeviceGetMemoryInfo_v2") == 24
    assert fake.calls("nvmlDeviceGetUtilizationRates") == 6
    assert fake.calls("nvmlDeviceGetTotalEnergyConsumption") == 2
    assert fake.calls("nvmlDeviceGetName") == 1
    fake.change(uuid, util=2)
    assert [gpus(timed_driver.sample(now))[0].utilisation for now in (11.5, 12.0)] == [1, 2]


# -- a driver that does not work -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (LIBRARY_MISMATCH, "different versions"),
        (NO_PERMISSION, "no permission to use the NVIDIA driver"),
        (UNKNOWN, "the NVIDIA driver does not work: Unknown Error"),
    ],
)
def test_unusable_driver_has_an_error_message(fake: FakeNvml, code: int, error: str) -> None:
    fake.set_gpus(H100)
    fake.fail_init(code)
    sample = once(fake)
    assert sample.gpus is None
    assert sample.error is not None and error in sample.error


def test_driver_process_reports_a_missing_driver(fake: FakeNvml) -> None:
    fake.uninstall()
    error = "no NVIDIA driver is installed: libnvidia-ml.so.1 was not found"
    assert once(fake)[1:] == (None, error, ())


def test_driver_that_is_installed_and_loaded_later_is_found(
    fake: FakeNvml, start: Callable[..., Running]
) -> None:
    fake.set_gpus(H100)
    fake.uninstall()
    watcher = start("--wait=0.1")
    assert watcher.next_sample().gpus is None
    fake.install()
    assert len(gpus(watcher.next_sample_with_gpus())) == 1


def test_after_an_update_of_the_driver_its_new_library_is_loaded(
    fake: FakeNvml, start: Callable[..., Running]
) -> None:
    fake.set_gpus(H100)
    fake.fail_init(LIBRARY_MISMATCH)
    watcher = start("--wait=0.1")
    watcher.send(b"a")
    assert watcher.next_sample().gpus is None
    loaded = fake.loads()
    fake.fail_init(0)
    assert len(gpus(watcher.next_sample_with_gpus())) == 1
    assert fake.loads() == loaded + 1


def test_driver_that_goes_away_is_waited_for(fake: FakeNvml, running: Running) -> None:
    fake.set_gpus(H100)
    assert running.now().gpus
    fake.fail("*", DRIVER_NOT_LOADED)
    gone = running.until(lambda sample: sample.gpus is None)
    assert gone.error == "the NVIDIA driver is not loaded"
    fake.fail("*", 0)
    back = running.next_sample_with_gpus()
    assert len(gpus(back)) == 1
    assert back.at - gone.at < IDLE_SECONDS / 2  # it does not wait for the next regular sample


# -- sample rate ----------------------------------------------------------------------------------


def test_driver_process_samples_at_the_active_rate(fake: FakeNvml, running: Running) -> None:
    fake.set_gpus(H100)
    running.send(b"a")
    first, *_, last = [running.next_sample() for _ in range(3)]
    assert last.at - first.at < IDLE_SECONDS


def test_driver_process_samples_on_request_at_the_idle_rate(
    fake: FakeNvml, running: Running
) -> None:
    fake.set_gpus(H100)
    running.send(b"ai")
    first = running.next_sample()
    last = [running.now() for _ in range(5)][-1]
    assert last.at - first.at < IDLE_SECONDS


def test_driver_process_exits_when_stdin_is_closed(fake: FakeNvml, running: Running) -> None:
    fake.set_gpus(H100)
    running.next_sample()
    assert running.process.stdin
    running.process.stdin.close()
    assert running.process.wait() == 0


def test_driver_process_exits_when_stdout_is_closed(fake: FakeNvml, running: Running) -> None:
    fake.set_gpus(H100)
    running.next_sample()
    assert running.process.stdout
    running.process.stdout.close()
    running.send(b"n")
    assert running.process.wait() == 0


# -- lines -----------------------------------------------------------------------------------------


def test_sample_survives_being_written_and_read() -> None:
    processes = (GpuProcess(7, None, True), GpuProcess(8, 1 << 40, False))
    gpu = GpuSample("GPU-1", 0, "0", "NVIDIA é", "0000:01:00.0", 1, 2, 3, processes=processes)
    sample = Sample(
        1.25, (gpu, gpu._replace(error="GPU is lost")), "x", (GpuFault("GPU-1", "Xid 79"),)
    )
    assert decode(encode(sample)) == sample
    assert encode(sample).count(b"\n") == 1
    assert decode(encode(Sample(1.5, None, "no driver"))) == Sample(1.5, None, "no driver")


@pytest.mark.parametrize("line", [b"", b"noise", b"7", b"[]", b'[1,[["GPU-1"]],null,[]]'])
def test_line_that_is_not_a_sample_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a sample"):
        decode(line)
