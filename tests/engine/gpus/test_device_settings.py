"""GPUs are drained, get slots and are restored while jobs run."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.helpers import refused
from tests.engine.gpus.host import GpuHost, GpuLab


def test_slots_are_shown_if_a_gpu_has_several(gpu_lab: GpuLab) -> None:
    assert "SLOTS" not in gpu_lab.ok("gpus")
    gpu_lab.ok("gpus", "slots", "2", "1")  # no daemon runs
    header, first, second = gpu_lab.ok("gpus").splitlines()
    at = header.index("SLOTS")
    assert (first[at], second[at]) == ("1", "2")
    assert [gpu["slots"] for gpu in gpu_lab.gpus()] == [1, 2]
    assert gpu_lab.wait(gpu_lab.submit("true")) == 0
    assert [gpu["slots"] for gpu in gpu_lab.gpus()] == [1, 2]
    gpu_lab.ok("gpus", "slots", "1", "1")
    assert "SLOTS" not in gpu_lab.ok("gpus")


def test_drained_gpu_takes_no_new_jobs(gpu_lab: GpuLab) -> None:
    assert gpu_lab.wait(gpu_lab.submit("true")) == 0
    assert (
        gpu_lab.ok("gpus", "drain", "0")
        == "GPU 0 drained: running jobs finish, no more jobs start\n"
    )
    jobs = [gpu_lab.submit("true") for _ in range(3)]
    assert gpu_lab.wait(*jobs) == 0
    assert gpu_lab.places(*jobs) == [[1], [1], [1]]
    assert [gpu["state"] for gpu in gpu_lab.gpus()] == ["drained", "free"]
    rows = gpu_lab.ok("status").splitlines()[1:3]
    assert [row.split()[-1] for row in rows] == ["(drained)", "-"]


def test_jobs_on_a_drained_gpu_finish_and_others_wait_until_it_is_restored(
    host: GpuHost, gpu_lab: GpuLab
) -> None:
    gate = host.gate()
    runs = gpu_lab.start(gate, "--gpu-ids", "0")
    gpu_lab.ok("gpus", "drain", "0")
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert "GPU 0 is drained and runs job 1" in gpu_lab.why(waits)
    gate.open()
    assert gpu_lab.wait(runs) == 0
    assert gpu_lab.wait(gpu_lab.submit("true")) == 0
    assert gpu_lab.state(waits) == "queued"
    assert gpu_lab.ok("gpus", "restore", "0") == "GPU 0 restored: jobs can start on it\n"
    assert gpu_lab.wait(waits) == 0


def test_all_gpus_can_be_drained_and_restored_at_once(gpu_lab: GpuLab) -> None:
    assert (
        gpu_lab.ok("gpus", "drain", "all")
        == "GPUs 0, 1 drained: running jobs finish, no more jobs start\n"
    )
    waits = gpu_lab.submit("true")
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "0", "true")) == 0
    assert gpu_lab.state(waits) == "queued"
    gpu_lab.ok("gpus", "restore", "all")
    assert gpu_lab.wait(waits) == 0


def test_drained_gpus_stay_drained_for_the_next_daemon(gpu_lab: GpuLab) -> None:
    gpu_lab.ok("gpus", "drain", "1")
    job = gpu_lab.submit("true")
    assert gpu_lab.wait(job) == 0
    gpu_lab.ok("daemon", "stop")
    jobs = [gpu_lab.submit("--prefer", "1", "true") for _ in range(2)]
    assert gpu_lab.wait(*jobs) == 0
    assert gpu_lab.places(job, *jobs) == [[0], [0], [0]]


def test_jobs_share_a_gpu_by_slots(host: GpuHost, gpu_lab: GpuLab) -> None:
    gate = host.gate()
    first = gpu_lab.start(gate, "--gpu-ids", "0")
    assert gpu_lab.ok("gpus", "slots", "3", "0") == "GPU 0 set to 3 slots\n"
    gpu_lab.submit("--hold", "true")  # the slots take effect before the GPU is free
    gate.open()
    assert gpu_lab.wait(first) == 0
    again = host.gate("again")
    jobs = [gpu_lab.start(again, "--gpu-ids", "0") for _ in range(3)]
    waits = gpu_lab.submit("--gpu-ids", "0", "true")
    assert gpu_lab.wait(gpu_lab.submit("--gpus", "0", "true")) == 0
    assert gpu_lab.state(waits) == "queued"
    assert gpu_lab.gpu(0)["slots"] == 3
    again.open()
    assert gpu_lab.wait(*jobs, waits) == 0


def test_slots_and_declared_memory_are_counted_together(host: GpuHost, gpu_lab: GpuLab) -> None:
    """The slot takes half of 79.4 GiB."""
    gate = host.gate()
    gpu_lab.ok("gpus", "slots", "2", "0")
    gpu_lab.start(gate, "--gpu-ids", "0")
    waits = gpu_lab.submit("-M", "40G", "--gpu-ids", "0", "true")
    fits = gpu_lab.submit("-M", "39G", "--gpu-ids", "0", "-p", "1", "true")
    assert gpu_lab.wait(fits) == 0
    assert gpu_lab.state(waits) == "queued"
    gate.open()
    assert gpu_lab.wait(waits) == 0


@pytest.mark.parametrize(
    ("args", "code", "message", "hint"),
    [
        (("drain",), 2, "no GPU given", "give indices or UUIDs, or `all`"),
        (("drain", "9"), 1, "there is no GPU `9`", "`stoker gpus` lists the GPUs"),
        (("drain", "0", "x"), 1, "there is no GPU `x`", "`stoker gpus` lists the GPUs"),
        (
            ("explode", "0"),
            2,
            "`explode` is not an action of `stoker gpus`",
            "actions: drain, restore, slots, share",
        ),
        (("slots",), 2, "no number of slots given", "example: stoker gpus slots 2 0 1"),
        (("slots", "0", "1"), 2, "the number of slots must be 1 to 64, not 0", None),
        (("slots", "65", "1"), 2, "the number of slots must be 1 to 64, not 65", None),
    ],
)
def test_invalid_change_is_refused_and_changes_nothing(
    gpu_lab: GpuLab, args: tuple[str, ...], code: int, message: str, hint: str
) -> None:
    refused(gpu_lab.run("gpus", *args), code, message, hint)
    assert [(gpu["state"], gpu["slots"]) for gpu in gpu_lab.gpus()] == [("free", 1)] * 2


def test_drain_is_refused_on_a_host_without_gpus(new_host: Callable[..., GpuHost]) -> None:
    refused(new_host().lab().run("gpus", "drain", "all"), 1, "this host has no GPU")


def test_changes_are_reported_as_json(host: GpuHost, gpu_lab: GpuLab) -> None:
    done = gpu_lab.ok("gpus", "drain", "1", "--json")
    assert json.loads(done) == {"schema": 2, "changed": [host.uuids[1]]}


def test_drained_gpu_does_not_block_jobs_on_other_gpus(gpu_lab: GpuLab) -> None:
    """A job that needs both GPUs waits; jobs that need one do not wait behind it."""
    gpu_lab.ok("gpus", "drain", "0")
    wide = gpu_lab.submit("--gpus", "2", "true")
    narrow = gpu_lab.submit("true")
    assert gpu_lab.run("wait", "-q", str(narrow), "--timeout", "10s").returncode == 0
    assert gpu_lab.state(wide) == "queued"
