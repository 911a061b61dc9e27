"""Estimates from earlier attempts are used for later jobs."""

from __future__ import annotations

from pathlib import Path

from tests.engine.gpus.host import GpuHost, GpuLab, allocate
from tests.fake_nvml import GIB

# A tenth more than the peak of 8 GiB, in steps of 256 MiB.
ESTIMATE = 9 * GIB


def _script(lab: GpuLab, size: int = 8 * GIB) -> Path:
    """A program that runs until a file named like its argument exists."""
    path = lab.folder / "train.sh"
    path.write_text(f"{allocate(size)}\nuntil [ -e $1 ]; do sleep 0.02; done\n")
    return path


def _waiting_script(lab: GpuLab) -> Path:
    """The same, but the program uses its GPU, and so is measured, only after `_allow_use`."""
    path = _script(lab)
    path.write_text(f"until [ -e use ]; do sleep 0.02; done\n{path.read_text()}")
    return path


def _allow_use(lab: GpuLab, host: GpuHost) -> None:
    (lab.folder / "use").touch()
    lab.wait_until(lambda: lab.gpu(0)["memory_used_bytes"] >= 8 * GIB)
    host.wait_for_sample()


def _submit(lab: GpuLab, script: Path, number: int, *options: str) -> int:
    return lab.submit(*options, "sh", str(script), str(number))


def _end(lab: GpuLab, number: int) -> None:
    (lab.folder / str(number)).touch()


def _run(lab: GpuLab, host: GpuHost, script: Path, number: int, *options: str) -> int:
    """Run a job until it was sampled."""
    job = _submit(lab, script, number, *options)
    lab.wait_until(lambda: lab.state(job) == "running")
    host.wait_for_sample()
    _end(lab, number)
    assert lab.wait(job) == 0
    return job


def test_show_says_how_many_such_jobs_fit_on_one_gpu_after_a_run(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    job = _run(gpu_lab, host, _script(gpu_lab), 1)
    shown = gpu_lab.ok("show", str(job))
    assert "needs 9.0 GiB of GPU memory; 8 of these jobs fit on one GPU: add --gpu-mem " in shown


def test_automatic_memory_is_a_whole_gpu_first_and_the_estimate_later(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    script = _waiting_script(gpu_lab)
    first = _submit(gpu_lab, script, 9, "-M", "auto", "--gpu-ids", "0")
    gpu_lab.wait_until(lambda: gpu_lab.state(first) == "running")
    host.wait_for_sample()
    assert gpu_lab.job(first)["claim_bytes"] is None
    other = gpu_lab.submit("-M", "1G", "--gpu-ids", "0", "true")
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "0", "true")) == 0
    assert gpu_lab.state(other) == "queued"
    _allow_use(gpu_lab, host)
    _end(gpu_lab, 9)
    assert gpu_lab.wait(first, other) == 0
    jobs = [_submit(gpu_lab, script, n, "-M", "auto", "--gpu-ids", "0") for n in range(3)]
    gpu_lab.wait_until(lambda: [gpu_lab.state(job) for job in jobs] == ["running"] * 3)
    assert [gpu_lab.job(job)["claim_bytes"] for job in jobs] == [ESTIMATE] * 3
    assert {tuple(place) for place in gpu_lab.places(*jobs)} == {(0,)}
    for number in range(3):
        _end(gpu_lab, number)
    assert gpu_lab.wait(*jobs) == 0


def test_waiting_jobs_with_automatic_memory_use_the_estimate_of_the_first_job(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    script = _waiting_script(gpu_lab)
    first = _submit(gpu_lab, script, 0, "-M", "auto", "--gpu-ids", "0")
    gpu_lab.wait_until(lambda: gpu_lab.state(first) == "running")
    host.wait_for_sample()
    jobs = [
        first,
        *(_submit(gpu_lab, script, n, "-M", "auto", "--gpu-ids", "0") for n in (1, 2, 3)),
    ]
    gpu_lab.wait_until(lambda: [gpu_lab.state(job) for job in jobs] == ["running"] * 4)
    assert [gpu_lab.job(job)["claim_bytes"] for job in jobs] == [None] * 4
    _allow_use(gpu_lab, host)
    _end(gpu_lab, 0)
    gpu_lab.wait_until(
        lambda: [gpu_lab.job(job)["claim_bytes"] for job in jobs[1:]] == [ESTIMATE] * 3
    )
    for number in range(1, 4):
        _end(gpu_lab, number)
    assert gpu_lab.wait(*jobs) == 0


def test_attempt_with_more_memory_raises_the_estimate(host: GpuHost, gpu_lab: GpuLab) -> None:
    _run(gpu_lab, host, _script(gpu_lab), 1)
    _run(gpu_lab, host, _script(gpu_lab, 40 * GIB), 2, "-M", "50G")
    job = _run(gpu_lab, host, _script(gpu_lab), 3, "-M", "auto")
    assert gpu_lab.job(job)["claim_bytes"] == 44 * GIB


def test_other_commands_do_not_use_the_estimate(host: GpuHost, gpu_lab: GpuLab) -> None:
    _run(gpu_lab, host, _script(gpu_lab), 1)
    job = gpu_lab.submit("-M", "auto", "echo something else")
    assert gpu_lab.wait(job) == 0
    assert gpu_lab.job(job)["claim_bytes"] is None


def test_attempt_that_failed_for_another_reason_updates_no_estimate(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    script = gpu_lab.folder / "train.sh"
    script.write_text(f"{allocate(8 * GIB)}\nuntil [ -e $1 ]; do sleep 0.02; done\nexit 1\n")
    job = _submit(gpu_lab, script, 1)
    gpu_lab.wait_until(lambda: gpu_lab.state(job) == "running")
    host.wait_for_sample()
    _end(gpu_lab, 1)
    assert gpu_lab.wait(job) == 1
    assert "learned" not in gpu_lab.ok("show", str(job))
