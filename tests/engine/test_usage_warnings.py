"""Warnings about running jobs that use far less or more than they requested."""

from __future__ import annotations

import pytest

from stoker.engine.gpus.usage_warnings import WINDOW_SECONDS, JobUsage, Requested, usage_warnings

GIB = 1 << 30
LONG = JobUsage(seconds=2 * WINDOW_SECONDS, readings=60, gpu_use=50.0)


def test_job_that_uses_what_it_requested_has_no_warning() -> None:
    requested = Requested(gpus=2, gpu_memory=40 * GIB, cores=8, memory=32 * GIB)
    used = LONG._replace(gpu_memory=30 * GIB, cores=6.0, memory=20 * GIB)
    assert usage_warnings(requested, used) == []


@pytest.mark.parametrize(
    ("requested", "used", "warning"),
    [
        (
            Requested(gpus=4),
            LONG._replace(gpu_use=0.0),
            "its 4 GPUs were at 0% for the last 10m00s: it may hang, or not use the GPU",
        ),
        (
            Requested(gpus=1, gpu_memory=40 * GIB),
            LONG._replace(gpu_memory=8 * GIB),
            "it uses 8.0 GiB of the 40 GiB of GPU memory that it requested",
        ),
        (
            Requested(gpus=1, gpu_memory=8 * GIB),
            LONG._replace(gpu_memory=9 * GIB),
            "it uses 9.0 GiB of GPU memory, more than the 8.0 GiB that it requested",
        ),
        (
            Requested(cores=8),
            LONG._replace(cores=0.5),
            "it uses 0.5 of the 8 cores that it requested",
        ),
        (
            Requested(cores=4),
            LONG._replace(cores=15.7),
            "it uses 15.7 cores, more than the 4 that it requested",
        ),
        (
            Requested(memory=64 * GIB),
            LONG._replace(memory=2 * GIB),
            "it uses 2.0 GiB of the 64 GiB of memory that it requested",
        ),
    ],
)
def test_warning_names_use_and_request(requested: Requested, used: JobUsage, warning: str) -> None:
    assert usage_warnings(requested, used) == [warning]


def test_job_that_has_just_started_is_warned_only_about_too_much_memory() -> None:
    requested = Requested(gpus=1, gpu_memory=40 * GIB, cores=8, memory=GIB)
    used = JobUsage(seconds=60, readings=6, gpu_memory=GIB, gpu_use=0.0, cores=0.1, memory=3 * GIB)
    assert usage_warnings(requested, used) == [
        "it uses 3.0 GiB of memory, more than the 1.0 GiB that it requested"
    ]


def test_job_without_measurements_has_no_warning() -> None:
    requested = Requested(gpus=1, gpu_memory=40 * GIB, cores=8, memory=GIB)
    assert usage_warnings(requested, JobUsage(seconds=1e6)) == []


def test_small_rest_of_a_request_is_no_warning() -> None:
    requested = Requested(gpus=1, gpu_memory=2 * GIB, cores=1, memory=2 * GIB)
    used = LONG._replace(gpu_memory=GIB // 2, cores=0.0, memory=GIB // 4)
    assert usage_warnings(requested, used) == []
