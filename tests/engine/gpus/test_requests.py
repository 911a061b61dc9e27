"""A job gets the GPUs that it requests; impossible requests are refused at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.helpers import refused
from tests.engine.gpus.host import A100, H200, GpuHost, GpuLab
from tests.fake_nvml import GIB


@pytest.fixture
def mixed(new_host: Callable[..., GpuHost]) -> GpuHost:
    """A host with GPUs 0 and 1: H200 of 80 GiB; 2 and 3: A100 of 40 GiB."""
    host = new_host(H200, H200, A100, A100)
    for uuid in host.uuids[2:]:
        host.fake.change(uuid, total=40 * GIB)
    return host


@pytest.fixture
def lab(mixed: GpuHost) -> GpuLab:
    return mixed.lab()


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        (("--gpu-ids", "2"), [2]),
        (("--gpu-ids", "3,1"), [1, 3]),
        (("--gpu-ids", "GPU-00000002"), [2]),
        (("--gpu-ids", "gpu-00000001-0000-4000-8000-000000000000,3"), [1, 3]),
        (("--gpu-ids", "1,2,3", "--gpus", "2"), [1, 2]),
        (("--prefer", "3"), [3]),
        (("--prefer", "3", "--gpus", "2"), [0, 3]),
        (("--gpu-model", "a100"), [2]),
        (("--gpu-model", "A100", "--gpus", "2"), [2, 3]),
        (("--min-gpu-mem", "41G", "--gpus", "2", "--prefer", "2,3"), [0, 1]),
        (("--gpu-mem", "50G", "--prefer", "2,1"), [1]),
        (("--exclusive", "--gpus", "4"), [0, 1, 2, 3]),
    ],
)
def test_request_selects_the_gpus(lab: GpuLab, options: tuple[str, ...], gpus: list[int]) -> None:
    job = lab.submit(*options, "echo $CUDA_VISIBLE_DEVICES")
    assert lab.wait(job) == 0
    assert lab.places(job) == [gpus]
    assert lab.log(job) == ",".join(map(str, gpus)) + "\n"


def test_job_waits_for_a_requested_gpu_although_others_are_free(
    mixed: GpuHost, lab: GpuLab
) -> None:
    gate = mixed.gate()
    first = lab.start(gate, "--gpu-ids", "1")
    second = lab.submit("--gpu-ids", "1", "true")
    third = lab.submit("--prefer", "1", "true")
    assert lab.wait(third) == 0
    assert lab.places(third) == [[0]]
    assert lab.state(second) == "queued"
    assert "GPU 1 runs job 1" in lab.why(second)
    gate.open()
    assert lab.wait(first, second) == 0
    assert lab.places(second) == [[1]]


def test_exclusive_job_shares_no_gpu_despite_slots(mixed: GpuHost, lab: GpuLab) -> None:
    gate = mixed.gate()
    lab.ok("gpus", "slots", "2", "0")
    alone = lab.start(gate, "--exclusive", "--gpu-ids", "0")
    waits = [lab.submit(*o, "--gpu-ids", "0", "true") for o in ((), ("-M", "1G"))]
    other = lab.submit("--gpu-ids", "1", "true")
    assert lab.wait(other) == 0
    assert [lab.state(job) for job in waits] == ["queued", "queued"]
    gate.open()
    assert lab.wait(alone, *waits) == 0


def test_request_is_shown_as_json_and_as_text(lab: GpuLab) -> None:
    options = ("--gpus", "2", "-M", "20G", "--gpu-ids", "0,1,2", "--prefer", "1")
    job = lab.submit("--hold", *options, "--min-gpu-mem", "30G", "--on-oom", "bigger", "true")
    shown = lab.job(job)
    assert shown["gpu_mem_bytes"] == 20 * GIB
    assert shown["gpu_ids"] == ["0", "1", "2"]
    assert shown["prefer"] == ["1"]
    assert shown["min_gpu_mem_bytes"] == 30 * GIB
    assert shown["on_oom"] == "bigger"
    assert shown["exclusive"] is False
    request = "2 GPUs, 20 GiB reserved on each, with 30 GiB or more among 0,1,2"
    assert f"GPUs        {request}\n" in lab.ok("show", str(job))


_KINDS = "GPUs on this host: 2 x NVIDIA A100-SXM4-80GB (39 GiB), 2 x NVIDIA H200 (79 GiB)"


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            ("--gpus", "5"),
            "the job requests 5 GPUs, but this host has 4 GPUs",
            "use --gpus 4 or fewer",
        ),
        (
            ("--gpu-mem", "100G"),
            "the job requests 1 GPU with 100 GiB of shareable memory,"
            " but no GPU on this host has that much memory",
            f"use --gpu-mem 79G or less; {_KINDS}",
        ),
        (
            ("--gpu-mem", "50G", "--gpus", "3"),
            "the job requests 3 GPUs with 50 GiB of shareable memory,"
            " but only 2 GPUs on this host have that much memory",
            f"use --gpu-mem 39G or less; {_KINDS}",
        ),
        (
            ("--min-gpu-mem", "81G"),
            "the job requests 1 GPU with 81 GiB of memory,"
            " but no GPU on this host has that much memory",
            _KINDS,
        ),
        (
            ("--gpu-model", "B200"),
            "the job requests 1 GPU with `B200` in the model name, but no such GPU is on this host",
            _KINDS,
        ),
        (
            ("--gpu-model", "A100", "--min-gpu-mem", "50G"),
            "the job requests 1 GPU with 50 GiB of memory and `A100` in the model name,"
            " but no such GPU is on this host",
            _KINDS,
        ),
        (
            ("--gpu-model", "A100", "--gpus", "3"),
            "the job requests 3 GPUs with `A100` in the model name,"
            " but only 2 such GPUs are on this host",
            _KINDS,
        ),
        (
            ("--gpu-ids", "2,3", "--gpu-mem", "50G", "--gpus", "1"),
            "the job requests 1 GPU among 2,3 with 50 GiB of shareable memory,"
            " but no such GPU is on this host",
            f"use --gpu-mem 39G or less; {_KINDS}",
        ),
        (
            ("--gpu-ids", "0,1", "--gpus", "3"),
            "the job requests 3 GPUs, but `--gpu-ids` lists 2",
            _KINDS,
        ),
        (
            ("--gpu-ids", "7"),
            "there is no GPU `7` on this host",
            "its GPUs: 0, 1, 2, 3",
        ),
        (
            ("--prefer", "9"),
            "there is no GPU `9` on this host",
            "its GPUs: 0, 1, 2, 3",
        ),
        (
            ("--gpu-ids", "0,GPU-deadbeef"),
            "there is no GPU `GPU-deadbeef` on this host",
            "its GPUs: 0, 1, 2, 3",
        ),
    ],
)
def test_request_that_no_gpu_can_satisfy_is_refused(
    lab: GpuLab, options: tuple[str, ...], message: str, hint: str
) -> None:
    refused(lab.run("submit", *options, "true"), 65, message, hint)
    assert lab.states() == {}


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            ("--gpu-mem", "lots"),
            "`lots` is not a size",
            "write 512M, 20G or a number of bytes",
        ),
        (("--gpu-mem", "-5G"), "`-5G` is not a size", "write 512M, 20G or a number of bytes"),
        (("--min-gpu-mem", "8X"), "`8X` is not a size", "write 512M, 20G or a number of bytes"),
        (("--gpu-ids", "0,,1"), "`0,,1` is not a list of GPUs", "write 0,2 or UUIDs, each once"),
        (("--gpu-ids", "1,1"), "`1,1` is not a list of GPUs", "write 0,2 or UUIDs, each once"),
        (("--prefer", ""), "`` is not a list of GPUs", "write 0,2 or UUIDs, each once"),
        (
            ("--gpu-mem", "5G", "--exclusive"),
            "`--gpu-mem` and `--exclusive` exclude each other",
            "use one of them",
        ),
        (
            ("--gpus", "0", "--gpu-mem", "5G"),
            "`--gpu-mem` needs `--gpus` 1 or more",
            "remove it, or remove --gpus 0",
        ),
        (
            ("--on-oom", "panic"),
            "`panic` is not a valid action",
            "write bigger, elsewhere, alone or fail",
        ),
    ],
)
def test_invalid_option_values_are_refused(
    lab: GpuLab, options: tuple[str, ...], message: str, hint: str
) -> None:
    done = lab.run("submit", *options, "true")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr and hint in done.stderr and "Traceback" not in done.stderr
    assert (done.returncode, done.stdout) == (2, "")
    assert lab.states() == {}


def test_impossible_line_of_a_job_file_refuses_the_whole_file(
    lab: GpuLab,
) -> None:
    jobs = lab.folder / "jobs.txt"
    jobs.write_text("true\ntrue #stoker --gpu-mem 200G\n")
    done = lab.run("submit", "--file", str(jobs))
    assert done.returncode == 65
    assert "200 GiB of shareable memory, but no GPU on this host has that" in done.stderr
    assert lab.states() == {}


def test_impossible_edit_is_refused_and_changes_nothing(lab: GpuLab) -> None:
    job = lab.submit("--hold", "true")
    done = lab.run("edit", str(job), "--gpus", "9")
    assert done.returncode == 65
    assert lab.job(job)["gpus"] == 1
