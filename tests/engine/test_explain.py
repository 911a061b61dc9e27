"""Why a job waits: the reasons are correct and suggest what to type."""

from __future__ import annotations

from tests.engine.scenario import Scenario


def test_job_that_starts_now_has_no_reason() -> None:
    with Scenario(gpus=1) as host:
        host.waits(1)
        assert host.explain(1) == ""


def test_reason_names_the_job_on_each_gpu_and_its_end() -> None:
    with Scenario(gpus=3) as host:
        host.runs(1, on=(0,), ends_by=75)
        host.runs(2, on=(1, 2))
        host.waits(3)
        assert host.explain(3) == (
            "it needs 1 GPU; GPU 0 runs job 1 for at most 1m15s more; "
            "GPU 1 runs job 2; GPU 2 runs job 2"
        )


def test_gpu_that_another_job_gets_in_the_same_tick_is_not_called_free() -> None:
    with Scenario(gpus=1) as host:
        host.waits(1, 2)
        assert host.explain(2) == "it needs 1 GPU; GPU 0 starts job 1 now"


def test_free_gpu_is_named_when_one_is_not_enough() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.waits(2, gpus=2)
        assert host.explain(2) == "it needs 2 GPUs; GPU 0 runs job 1; GPU 1 is free"


def test_shared_gpu_names_all_its_jobs_and_its_room() -> None:
    with Scenario(slots=(3, 1)) as host:
        host.runs(1, on=(0,))
        host.runs(2, on=(0,))
        host.runs(3, on=(1,))
        host.waits(4, gpus=2)
        assert host.explain(4) == (
            "it needs 2 GPUs; GPU 0 runs jobs 1, 2 and has room; GPU 1 runs job 3"
        )


def test_job_past_its_limit_has_no_negative_time_left() -> None:
    with Scenario(gpus=1, now=100) as host:
        host.runs(1, on=(0,), ends_by=40)
        host.waits(2)
        assert "for at most 0.0s more" in host.explain(2)


def test_reserved_gpus_name_the_job_with_the_reservation() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,))
        host.waits(2, gpus=2)
        host.waits(3)
        assert host.explain(3) == "GPUs 0, 1 are reserved for job 2, which comes first"


def test_reserved_gpus_say_when_the_other_job_likely_starts() -> None:
    with Scenario(gpus=2) as host:
        host.runs(1, on=(0,), ends_by=600)
        host.waits(2, gpus=2)
        host.waits(3)
        assert host.explain(3) == (
            "GPUs 0, 1 are reserved for job 2, which comes first, likely in 10m00s"
        )


def test_cpu_slots_name_the_jobs_that_use_them() -> None:
    with Scenario(cpu_slots=2) as host:
        host.runs(1)
        host.waits(2, 3, gpus=0)
        assert host.explain(3) == "all 2 CPU slots are used by jobs 1, 2"


def test_long_lists_of_jobs_are_shortened() -> None:
    with Scenario(cpu_slots=9) as host:
        for id in range(1, 10):
            host.runs(id)
        host.waits(10, gpus=0)
        assert host.explain(10) == "all 9 CPU slots are used by jobs 1, 2, 3, 4, 5, ..."


def test_reason_of_an_impossible_job_names_the_gpus_of_the_host() -> None:
    with Scenario(gpus=2) as host:
        host.waits(1, gpus=4)
        assert host.explain(1) == "it needs 4 GPUs, and this host has 2"


def test_drained_queue_says_how_to_resume() -> None:
    with Scenario(gpus=1, draining=True) as host:
        host.waits(1)
        assert "stoker daemon resume" in host.explain(1)


def test_jobs_in_front_are_counted() -> None:
    with Scenario(gpus=1) as host:
        host.runs(1, on=(0,))
        host.waits(2)
        assert host.explain(2, ahead=1).endswith("1 job in front of it")
        assert host.explain(2, ahead=7).endswith("7 jobs in front of it")
