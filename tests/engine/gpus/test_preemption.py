"""Preemptible jobs give way to other users of a host: their leases and their processes."""

from __future__ import annotations

from tests.engine.gpus.host import USER, GpuHost, GpuLab, allocate
from tests.fake_nvml import GIB
from tests.lab import wait_until

# Its first attempt uses its GPU until it is asked to stop; its second one ends at once.
WORK = f"test $STOKER_ATTEMPT -ge 2 && exit 0; {allocate(GIB)}; echo started; exec sleep 600"


def start(lab: GpuLab, *options: str, command: str = WORK) -> int:
    job = lab.submit(*options, command)
    wait_until(lambda: lab.log(job) == "started\n", what="the job to start")
    return job


def causes(lab: GpuLab, job: int) -> list[str]:
    return [attempt["cause"] for attempt in lab.job(job)["history"]]


def test_preemptible_job_gives_way_to_a_job_of_another_queue(host: GpuHost) -> None:
    first, second = host.lab(), host.lab()
    gate = host.gate()
    jobs = [start(first, "--preemptible", "--gpu-ids", str(gpu)) for gpu in (0, 1)]
    # The other queue needs one GPU, so only one of the jobs leaves.
    other = second.submit(gate.wait)
    gate.wait_for()
    assert sorted(first.job(job)["preemptions"] for job in jobs) == [0, 1]
    asked = next(job for job in jobs if first.job(job)["preemptions"])
    assert f"it gave way to {USER} (pid {second.daemon_pid()}) at " in first.why(asked)
    gate.open()
    assert second.wait(other) == 0
    assert first.wait(asked) == 0
    assert causes(first, asked) == ["preempted", "exit"]
    first.ok("cancel", "all")


def test_preemptible_jobs_do_not_give_way_to_preemptible_jobs_of_another_queue(
    host: GpuHost,
) -> None:
    first, second = host.lab(), host.lab()
    jobs = [start(first, "--preemptible", "--gpu-ids", str(gpu)) for gpu in (0, 1)]
    waiting = second.submit("--preemptible", "true")
    wait_until(lambda: "leased" in second.why(waiting), what="the reason")
    host.wait_for_sample()
    host.wait_for_sample()
    assert [first.job(job)["gives_way_to"] for job in jobs] == [None, None]
    first.ok("cancel", "all")
    assert second.wait(waiting) == 0


def test_preemptible_job_gives_way_to_another_process_if_configured(host: GpuHost) -> None:
    lab = host.lab(STOKER_PREEMPT_FOR_OTHERS="1")
    job = start(lab, "--preemptible", "--gpu-mem", "10G", "--gpu-ids", "0")
    pid = host.other_process(0, 5 * GIB)
    wait_until(lambda: lab.job(job)["preemptions"] == 1, what="the job to give way")
    # It does not start again while the other process computes there.
    assert lab.state(job) == "queued"
    assert "gave way to another process" in lab.why(job)
    host.end_other_process(pid)
    assert lab.wait(job) == 0
    assert causes(lab, job) == ["preempted", "exit"]


def test_preemptible_job_stays_beside_another_process_by_default(host: GpuHost) -> None:
    lab, gate = host.lab(), host.gate()
    job = start(lab, "--preemptible", "--gpu-mem", "10G", "--gpu-ids", "0")
    host.other_process(0, 5 * GIB)
    lab.stay_awake(gate)
    host.wait_for_sample()
    assert lab.job(job)["gives_way_to"] is None
    gate.open()
    lab.ok("cancel", "all")


def test_normal_job_makes_room_on_a_shared_gpu(host: GpuHost) -> None:
    lab = host.lab()
    jobs = [start(lab, "--preemptible", "-M", "30G", "--gpu-ids", "0") for _ in range(2)]
    assert lab.wait(lab.submit("-M", "30G", "--gpu-ids", "0", "true")) == 0
    # Which one depends on whether the younger has run for a second.
    wait_until(
        lambda: sorted(lab.job(job)["preemptions"] for job in jobs) == [0, 1],
        what="one of the jobs to give way",
    )
    lab.ok("cancel", "all")
