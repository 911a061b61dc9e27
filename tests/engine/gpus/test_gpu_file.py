"""The GPU file lists the GPUs to use; changes take effect while the daemon is running."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.gpus.host import GpuHost, GpuLab


@pytest.fixture
def gpu_file(tmp_path: Path) -> Path:
    return tmp_path / "gpus.txt"


def _places(lab: GpuLab, count: int = 2) -> set[tuple[int, ...]]:
    jobs = [lab.submit("true") for _ in range(count)]
    assert lab.wait(*jobs) == 0
    return {tuple(place) for place in lab.places(*jobs)}


def test_only_gpus_listed_in_the_file_are_used(host: GpuHost, gpu_file: Path) -> None:
    gpu_file.write_text("1\n")
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    assert _places(lab) == {(1,)}
    waits = lab.submit("--gpu-ids", "0", "true")
    assert _places(lab) == {(1,)}
    assert lab.state(waits) == "queued"


def test_file_may_list_a_gpu_by_uuid_and_twice_for_two_slots(host: GpuHost, gpu_file: Path) -> None:
    gpu_file.write_text(f"{host.uuids[1]},{host.uuids[1]}\n")
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    gate = host.gate()
    jobs = [lab.start(gate) for _ in range(2)]
    assert lab.places(*jobs) == [[1], [1]]


def test_change_of_the_file_takes_effect(host: GpuHost, gpu_file: Path) -> None:
    gpu_file.write_text("1\n")
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    waits = lab.submit("--gpu-ids", "0", "true")
    assert _places(lab) == {(1,)}
    gpu_file.write_text("0\n")
    assert lab.wait(waits) == 0
    assert _places(lab) == {(0,)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"invalid\n", "`invalid`"),
        (b"0 0+1\n", "`0+1`"),
        (b"\xff\xfe\x00\n", "cannot use the GPU file"),
    ],
)
def test_invalid_file_is_reported_and_changes_nothing(
    host: GpuHost, gpu_file: Path, content: bytes, message: str
) -> None:
    gpu_file.write_text("1\n")
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    assert _places(lab) == {(1,)}
    gpu_file.write_bytes(content)
    lab.wait_until(lambda: str(gpu_file) in lab.daemon_log())
    assert message in lab.daemon_log() and "Traceback" not in lab.daemon_log()
    assert _places(lab) == {(1,)}


def test_file_that_is_invalid_from_the_start_leaves_all_gpus_in_use(
    host: GpuHost, gpu_file: Path
) -> None:
    gpu_file.write_text("invalid\n")
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    job = lab.submit("--gpus", "2", "true")
    assert lab.wait(job) == 0
    assert "invalid" in lab.daemon_log()


def test_missing_file_is_reported_and_read_when_it_appears(host: GpuHost, gpu_file: Path) -> None:
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    assert _places(lab, 1) == {(0,)}
    assert "No such file" in lab.daemon_log()
    gpu_file.write_text("1\n")
    lab.wait_until(lambda: _places(lab, 1) == {(1,)})
    assert lab.gpu(0)["state"] == "not listed in the GPU file"
    assert _places(lab) == {(1,)}


def test_empty_file_allows_no_gpu(host: GpuHost, gpu_file: Path) -> None:
    gpu_file.touch()
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    waits = lab.submit("true")
    assert lab.wait(lab.submit("--gpus", "0", "true")) == 0
    assert "GPU 0 not listed in the GPU file" in lab.why(waits)
    gpu_file.write_text("0\n")
    assert lab.wait(waits) == 0


def test_unknown_gpu_is_reported_and_the_rest_of_the_file_applies(
    host: GpuHost, gpu_file: Path
) -> None:
    gpu_file.write_text("7, 1\n")
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    assert _places(lab) == {(1,)}
    assert "names GPU `7`, which this host does not have" in lab.daemon_log()


def test_fifo_in_place_of_the_file_blocks_nothing(host: GpuHost, gpu_file: Path) -> None:
    os.mkfifo(gpu_file)
    lab = host.lab(STOKER_GPU_FILE=str(gpu_file))
    job = lab.submit("--gpus", "2", "true")
    assert lab.wait(job) == 0
    assert "it is not a regular file" in lab.daemon_log()
    assert [gpu["state"] for gpu in lab.gpus()] == ["free", "free"]
