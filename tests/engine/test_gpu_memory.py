"""GPU memory to reserve, from the peaks of earlier attempts."""

from __future__ import annotations

import pytest

from stoker.engine.model import Device, Request
from stoker.engine.profiles.gpu_memory import after_oom, budget
from stoker.engine.profiles.sharing_advice import sharing_advice

GIB = 1 << 30
GPUS = (Device(0, "0", memory=80 * GIB), Device(1, "1", memory=40 * GIB))


@pytest.mark.parametrize("peak", [1, 256 << 20, 8 * GIB, 79 * GIB])
def test_budget_is_ten_percent_above_the_peak_in_round_steps(peak: int) -> None:
    assert peak * 1.1 <= budget(peak) < peak * 1.1 + (256 << 20) + 1
    assert budget(peak) % (256 << 20) == 0


def test_advice_says_how_many_jobs_fit_on_one_gpu() -> None:
    advice = sharing_advice(Request(1), 8 * GIB, GPUS)
    assert advice == "8 of these jobs fit on one GPU: add --gpu-mem 9G"


def test_advice_respects_the_cores_of_the_host() -> None:
    advice = sharing_advice(Request(1), GIB, GPUS, cores=16)
    assert advice == (
        "8 of these jobs fit on one GPU with 16 cores for 2 GPUs: add --gpu-mem 1280M"
    )
    assert sharing_advice(Request(1, cpus=8), GIB, GPUS, cores=16) is None
    assert sharing_advice(Request(1), 8 * GIB, GPUS, cores=64) == (
        "8 of these jobs fit on one GPU: add --gpu-mem 9G"
    )


def test_advice_reports_the_measured_throughput() -> None:
    speeds = {1: 54.0, 4: 43.5, 8: 22.0}
    advice = sharing_advice(Request(1), 8 * GIB, GPUS, 64, speeds)
    words = "4 of these run at once on one GPU: 3.2 times the throughput; 8: 3.3 times"
    assert advice == f"8 of these jobs fit on one GPU: add --gpu-mem 9G; {words}"
    assert sharing_advice(Request(1, is_auto=True), 8 * GIB, GPUS, 64, speeds) == words


@pytest.mark.parametrize(
    "request_",
    [Request(0), Request(1, 9 * GIB), Request(1, is_auto=True), Request(1, exclusive=True)],
)
def test_jobs_that_share_or_are_exclusive_get_no_advice(request_: Request) -> None:
    assert sharing_advice(request_, 8 * GIB, GPUS) is None


def test_advice_is_empty_if_only_one_job_fits() -> None:
    assert sharing_advice(Request(1), 60 * GIB, GPUS) is None


def test_job_out_of_memory_requests_half_as_much_again() -> None:
    wanted = after_oom(Request(1, 10 * GIB), "bigger", 12 * GIB, ("GPU-1",), 80 * GIB)
    assert wanted.memory == budget(18 * GIB)


def test_job_out_of_memory_requests_what_its_message_asked_for() -> None:
    wanted = after_oom(Request(1, 2 * GIB), "bigger", 3 * GIB, ("GPU-1",), 80 * GIB, 20 * GIB)
    assert wanted.memory == 22 * GIB


def test_need_below_the_reservation_does_not_lower_the_next_request() -> None:
    wanted = after_oom(Request(1, 10 * GIB), "bigger", None, ("GPU-1",), 80 * GIB, 4 * GIB)
    assert wanted.memory == budget(15 * GIB)


def test_request_above_the_largest_gpu_becomes_a_whole_gpu() -> None:
    wanted = after_oom(Request(1, 60 * GIB), "bigger", None, ("GPU-1",), 80 * GIB)
    assert wanted == Request(1, exclusive=True)


def test_job_out_of_memory_on_a_slot_requests_the_whole_gpu() -> None:
    assert after_oom(Request(1), "bigger", None, ("GPU-1",), 80 * GIB) == Request(1, exclusive=True)


def test_job_out_of_memory_avoids_the_gpu_or_becomes_exclusive() -> None:
    request = Request(1, 10 * GIB)
    assert after_oom(request, "elsewhere", None, ("GPU-1",), 80 * GIB).avoid == ("GPU-1",)
    assert after_oom(request, "alone", None, ("GPU-1",), 80 * GIB) == Request(1, exclusive=True)
    assert after_oom(request, "fail", None, ("GPU-1",), 80 * GIB) == request
