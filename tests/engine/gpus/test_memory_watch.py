"""What one sample after another means for the memory of jobs that are being measured."""

from __future__ import annotations

from stoker.engine.daemon.gpus.group_leases import GroupLeases
from stoker.engine.daemon.gpus.memory_actions import MemoryAction, MemoryLearned, PauseJob
from stoker.engine.daemon.gpus.memory_watch import MemoryWatch
from stoker.engine.gpus.occupancy import occupancy_of
from stoker.engine.gpus.sample import GpuProcess, GpuSample
from stoker.engine.model import Device, Request, RunningJob

GIB = 1 << 30
DEVICE = Device(0, "0", memory=80 * GIB, uuid="GPU-1")
LIVE = {
    number: RunningJob(
        number, number, Request(1, is_auto=True, profile=1), (0,), started=0.0, profile=1
    )
    for number in (1, 2)
}


def _observe(watch: MemoryWatch, at: float, utilization: int, *jobs: int) -> list[MemoryAction]:
    """A sample in which these jobs have 8 GiB each."""
    processes = tuple(GpuProcess(job, 8 * GIB, True) for job in jobs)
    gpu = GpuSample(
        "GPU-1", 0, "0", "", "", 80 * GIB, 0, 8 * GIB * len(jobs),
        utilisation=utilization, processes=processes, load_at=at,
    )  # fmt: skip
    watch.begin_sample(LIVE)
    occupancy = occupancy_of(gpu, {job: job for job in LIVE}, {})
    return watch.observe(gpu, DEVICE, occupancy, LIVE, at)


def test_follower_does_not_continue_while_its_gpu_computes_nothing() -> None:
    watch = MemoryWatch(GroupLeases())
    for at in range(7):
        assert _observe(watch, at, 0, 1) == []
    (pause,) = _observe(watch, 7.0, 0, 1, 2)
    assert isinstance(pause, PauseJob) and pause.attempt == 2
    assert _observe(watch, 7.5, 0, 1, 2) == []


def test_follower_is_not_paused_if_one_of_the_jobs_computes_and_the_first_is_steady() -> None:
    watch = MemoryWatch(GroupLeases())
    for at in range(7):
        assert _observe(watch, at, 0, 1) == []
    actions = _observe(watch, 7.0, 50, 1, 2)  # which of the two computes is not known
    assert not any(isinstance(one, PauseJob) for one in actions)
    assert any(isinstance(one, MemoryLearned) for one in actions)
