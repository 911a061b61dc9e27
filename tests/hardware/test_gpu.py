"""Packing, estimates and out-of-memory handling on a real GPU."""

from __future__ import annotations

import pytest

from tests.hardware.conftest import GIB, HardwareLab

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize(("count", "gib"), [(2, 50), (8, 12)])
def test_jobs_packed_by_declared_memory_run_at_once_and_never_run_out_of_it(
    lab: HardwareLab, count: int, gib: int
) -> None:
    end = lab.folder / "end"
    jobs = [lab.train(f"--gpu-mem={gib + 2}G", gib=gib, until=str(end)) for _ in range(count)]
    lab.wait_until(lambda: all(lab.is_up(job) for job in jobs))
    waiting = lab.train("--gpu-mem=60G", gib=1)
    assert lab.state(waiting) == "queued"
    end.touch()
    assert lab.wait() == 0
    for job in jobs:
        peak = lab.job(job)["gpu_memory_peak_bytes"]
        assert isinstance(peak, int) and gib * GIB <= peak <= (gib + 2) * GIB
        assert lab.job(job)["cause"] == "exit"


def test_gpu_memory_is_estimated_and_then_shared(lab: HardwareLab) -> None:
    end = lab.folder / "end"
    end.touch()
    first = lab.train("--gpu-mem=auto", gib=10, steps=200, until=str(end))
    assert lab.wait(first) == 0
    whole_or_provisional = lab.job(first)["claim_bytes"]  # the latter if it ran for long enough
    assert whole_or_provisional is None or 20 * GIB < whole_or_provisional < 28 * GIB
    end.unlink()
    jobs = [lab.train("--gpu-mem=auto", gib=10, steps=200, until=str(end)) for _ in range(8)]
    lab.wait_until(lambda: sum(lab.is_up(job) for job in jobs) >= 8)
    end.touch()
    assert lab.wait() == 0
    claims = {lab.job(job)["claim_bytes"] for job in jobs}
    (claim,) = claims
    assert isinstance(claim, int) and 10 * GIB < claim < 14 * GIB


def test_gpu_with_another_process_is_avoided(lab: HardwareLab) -> None:
    other = lab.other_process(20)
    job = lab.train(gib=1)
    lab.wait_until(lambda: f"pid {other.pid}" in lab.ok("why", str(job)))
    assert lab.state(job) == "queued"
    assert f"pid {other.pid}" in lab.ok("gpus")
    small = lab.train("--gpu-mem=10G", gib=5)
    assert lab.wait(small) == 0
    other.kill()
    other.wait()
    assert lab.wait(job) == 0


def test_out_of_memory_is_recognized_and_retried_with_more(lab: HardwareLab) -> None:
    other = lab.other_process(110)
    job = lab.train("--gpu-mem=10G", "--on-oom=bigger", gib=60)
    lab.wait_until(lambda: lab.job(job)["attempts"] == 1)
    lab.wait_until(lambda: first_cause(lab, job))
    assert first_cause(lab, job) == "gpu_oom"
    other.kill()
    other.wait()
    lab.wait(job)
    seen = lab.job(job)
    assert seen["state"] == "done", lab.ok("show", str(job))
    claim = seen["claim_bytes"]
    assert isinstance(claim, int) and claim > 10 * GIB


def first_cause(lab: HardwareLab, job: int) -> str | None:
    history = lab.job(job)["history"]
    return history[0]["cause"] if history else None


def test_gpu_is_reused_only_when_its_memory_is_free_again(lab: HardwareLab) -> None:
    for _ in range(3):
        big = lab.train("--grace=0s", gib=100, until=str(lab.folder / "never"))
        lab.wait_until(lambda job=big: lab.is_up(job))  # type: ignore[misc]
        after = lab.train(gib=120)
        lab.ok("cancel", str(big))
        assert lab.wait(after) == 0
        seen = lab.report(after)
        assert seen["free"] > 0.97 * seen["total"]
