"""`stoker run --devices`: the devices of jobs, and invalid lists."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.helpers import refused
from tests.lab import Lab

HOW = "write 0,1,2 or 0+1,2+3, or UUIDs"


def devices_of(lab: Lab, named: str, mask: str = "") -> list[str]:
    """The distinct values of CUDA_VISIBLE_DEVICES in six jobs."""
    words = ["--devices", named] if named else []
    done = lab.run("run", "--stream", "-q", *words, "-", input="echo $CUDA_VISIBLE_DEVICES\n" * 6,
                   CUDA_VISIBLE_DEVICES=mask)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(set(done.stdout.split()))


def test_jobs_get_the_named_devices(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(devices=6)
    assert devices_of(lab, "3") == ["3"]
    assert devices_of(lab, "0+1") == ["0,1"]
    assert devices_of(lab, "SIM-4") == ["SIM-4"]


def test_device_names_are_not_checked_on_a_host_without_driver(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab()
    assert devices_of(lab, "7") == ["7"]
    assert devices_of(lab, "GPU-8f3a+MIG-1") == ["GPU-8f3a,MIG-1"]


def test_unknown_device_is_refused(lab: Lab) -> None:
    for named, missing in (("0,2", "2"), ("0+9", "9"), ("GPU-8f3a", "GPU-8f3a")):
        refused(lab.run("run", "--devices", named, "true"), 65,
                f"there is no GPU `{missing}` on this host", "its GPUs: 0, 1")  # fmt: skip


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("0,,1", "`0,,1` is not a list of GPUs"),
        ("0+", "`0+` is not a list of GPUs"),
        ("0,x", "`x` is not a GPU index or UUID"),
        ("-1", "`-1` is not a GPU index or UUID"),
        ("0+0", "`0+0` has a GPU twice"),
    ],
)
def test_invalid_device_list_is_refused(
    new_lab: Callable[..., Lab], named: str, message: str
) -> None:
    for lab in (new_lab(devices=2), new_lab()):
        refused(lab.run("run", f"--devices={named}", "true"), 2, message, HOW)


@pytest.mark.parametrize("named", ["", " "])
def test_empty_device_list_is_refused(lab: Lab, named: str) -> None:
    refused(lab.run("run", "--devices", named, "true"), 2,
            "`--devices` is empty", "for jobs without a GPU: --gpus 0")  # fmt: skip
    refused(lab.run("run", "--gpus", "0,1", "true"), 2, "`--gpus`: `0,1` is not an integer",
            "this option is the number of GPUs; to choose GPUs: --devices 0,1")  # fmt: skip


def test_run_respects_cuda_visible_devices(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab()
    assert devices_of(lab, "", mask="7") == ["7"]
    assert devices_of(lab, "", mask="7,-1,5") == ["7"]
    assert devices_of(lab, "", mask="-1") == []
