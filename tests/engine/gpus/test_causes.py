"""Failure causes are found, shown, and decide about retries."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.engine.gpus.host import OUT_OF_MEMORY, GpuHost, GpuLab, failing, hold_memory
from tests.fake_nvml import GIB

QUICK = {"STOKER_RETRY_DELAY": "0.02s"}

WITHOUT_SIZE = "torch.AcceleratorError: CUDA error: out of memory"


@pytest.fixture
def lab(host: GpuHost) -> GpuLab:
    return host.lab(**QUICK)


@pytest.mark.parametrize(
    ("command", "cause", "text", "code"),
    [
        (failing(OUT_OF_MEMORY), "gpu_oom", "out of GPU memory", 1),
        (failing("RuntimeError: CUDA error: out of memory"), "gpu_oom", "out of GPU memory", 1),
        (failing("OSError: [Errno 28] No space left on device"), "disk_full", "disk full", 1),
        (failing("MemoryError"), "host_oom", "out of memory", 1),
        (failing("CUDA error: an illegal memory access was encountered"), "gpu_error",
         "GPU error", 1),
        ("python3 -c 'import no_such_module'", "missing_module", "module not found", 1),
        ("python3 no-such-script.py", "missing_script", "script not found (exit 2)", 2),
        ("no-such-program && true", "missing_program", "command not found", 127),
        (failing("something else went wrong"), "exit", "exit 1", 1),
    ],
)  # fmt: skip
def test_failure_cause_is_shown_by_all_commands(
    lab: GpuLab, command: str, cause: str, text: str, code: int
) -> None:
    job = lab.submit(command)
    assert lab.wait(job) == code
    shown = lab.job(job)
    assert (shown["state"], shown["cause"], shown["exit_code"]) == ("failed", cause, code)
    assert f"[{text}]" in lab.ok("ls")
    assert f"failed: {text}" in lab.ok("show", str(job))


def test_log_line_that_shows_the_cause_is_kept(lab: GpuLab) -> None:
    job = lab.submit(failing(OUT_OF_MEMORY))
    assert lab.wait(job) == 1
    assert lab.job(job)["detail"] == OUT_OF_MEMORY


def test_cause_is_found_in_the_stderr_file_of_a_job(lab: GpuLab) -> None:
    job = lab.submit("--stderr", str(lab.folder / "errors"), failing(OUT_OF_MEMORY))
    assert lab.wait(job) == 1
    assert lab.job(job)["cause"] == "gpu_oom"


def test_job_that_continued_after_an_oom_did_not_fail_of_it(lab: GpuLab) -> None:
    job = lab.submit(f"echo '{OUT_OF_MEMORY} retrying with less'; exit 3")
    assert lab.wait(job) == 3
    assert lab.job(job)["cause"] == "exit"


def test_unspecific_cuda_error_on_a_full_gpu_is_out_of_memory(host: GpuHost, lab: GpuLab) -> None:
    text = failing("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")
    gate = host.gate()
    full = lab.submit("--gpu-ids", "0", f"{hold_memory(gate, 79 * GIB)}; {text}")
    empty = lab.submit("--gpu-ids", "1", f"{hold_memory(gate, 1 * GIB)}; {text}")
    gate.wait_for(2)
    host.wait_for_sample()
    gate.open()
    assert lab.wait(full, empty) == 1
    assert [lab.job(job)["cause"] for job in (full, empty)] == ["gpu_oom", "exit"]


def test_missing_module_is_not_retried(lab: GpuLab) -> None:
    job = lab.submit("--retries", "3", "python3 -c 'import no_such_module'")
    assert lab.wait(job) == 1
    assert lab.job(job)["attempts"] == 1


def test_job_out_of_memory_is_not_retried_by_default(lab: GpuLab) -> None:
    job = lab.submit("-M", "10G", failing(OUT_OF_MEMORY))
    assert lab.wait(job) == 1
    assert lab.job(job)["attempts"] == 1


def test_retries_count_for_a_job_out_of_memory_too(lab: GpuLab) -> None:
    job = lab.submit("-M", "10G", "--retries", "1", failing(OUT_OF_MEMORY))
    assert lab.wait(job) == 1
    assert lab.job(job)["attempts"] == 2
    assert lab.job(job)["claim_bytes"] == 10 * GIB


def test_on_oom_fail_is_not_retried_despite_retries(lab: GpuLab) -> None:
    job = lab.submit("-M", "10G", "--retries", "3", "--on-oom", "fail", failing(OUT_OF_MEMORY))
    assert lab.wait(job) == 1
    assert lab.job(job)["attempts"] == 1


def test_on_oom_bigger_requests_more_each_time_up_to_a_limit(lab: GpuLab) -> None:
    claims = lab.folder / "claims"
    command = f"echo $STOKER_GPU_MEM_MIB >> {claims}; {failing(WITHOUT_SIZE)}"
    job = lab.submit("-M", "4G", "--on-oom", "bigger", command)
    assert lab.wait(job) == 1
    seen = [int(word) for word in claims.read_text().split()]
    assert seen[0] == 4096 and len(seen) == 4
    assert all(1.5 * before < after < 2 * before for before, after in pairwise(seen))
    assert [one["cause"] for one in lab.job(job)["history"]] == ["gpu_oom"] * 4


def test_on_oom_bigger_succeeds_as_soon_as_memory_is_enough(lab: GpuLab) -> None:
    command = f"[ $STOKER_GPU_MEM_MIB -gt 8000 ] || {{ {failing(WITHOUT_SIZE)}; }}"
    job = lab.submit("-M", "6G", "--on-oom", "bigger", command)
    assert lab.wait(job) == 0
    shown = lab.job(job)
    assert (shown["attempts"], shown["state"]) == (2, "done")
    assert shown["claim_bytes"] > 9 * GIB


def test_on_oom_bigger_requests_at_once_what_the_message_asks_for(lab: GpuLab) -> None:
    command = f"[ $STOKER_GPU_MEM_MIB -ge 20480 ] || {{ {failing(OUT_OF_MEMORY)}; }}"
    job = lab.submit("-M", "2G", "--on-oom", "bigger", command)
    assert lab.wait(job) == 0
    shown = lab.job(job)
    assert (shown["attempts"], shown["claim_bytes"]) == (2, 22 * GIB)


def test_request_larger_than_any_gpu_fails_at_once(lab: GpuLab) -> None:
    text = OUT_OF_MEMORY.replace("20.00 GiB", "150.00 GiB")
    job = lab.submit("-M", "2G", "--on-oom", "bigger", failing(text))
    assert lab.wait(job) == 1
    shown = lab.job(job)
    assert (shown["attempts"], shown["cause"]) == (1, "gpu_oom")
    assert (
        "it asked for 150 GiB on one GPU, and the largest GPU of this host has" in shown["detail"]
    )


def test_on_oom_alone_gets_an_exclusive_gpu(host: GpuHost, lab: GpuLab) -> None:
    gate = host.gate()
    other = lab.start(gate, "-M", "10G", "--gpu-ids", "0")
    command = f"[ -z $STOKER_GPU_MEM_MIB ] || {{ {failing(OUT_OF_MEMORY)}; }}"
    job = lab.submit("-M", "10G", "--gpu-ids", "0", "--on-oom", "alone", command)
    lab.wait_until(lambda: lab.job(job)["exclusive"])
    assert lab.state(job) == "queued"
    gate.open()
    assert lab.wait(other, job) == 0
    assert lab.job(job)["attempts"] == 2


def test_on_oom_elsewhere_uses_another_gpu_with_the_same_memory(lab: GpuLab) -> None:
    command = f"[ $CUDA_VISIBLE_DEVICES = 1 ] || {{ {failing(OUT_OF_MEMORY)}; }}"
    job = lab.submit("-M", "10G", "--prefer", "0", "--on-oom", "elsewhere", command)
    assert lab.wait(job) == 0
    shown = lab.job(job)
    assert [attempt["devices"] for attempt in shown["history"]] == [[0], [1]]
    assert shown["claim_bytes"] == 10 * GIB


def test_running_out_of_memory_raises_the_estimate(host: GpuHost, lab: GpuLab) -> None:
    script = lab.folder / "train.sh"
    gate = host.gate()
    script.write_text(
        f"{hold_memory(gate, 10 * GIB)}\n[ $1 = 2 ] || {{ {failing(OUT_OF_MEMORY)}; }}\n"
    )
    job = lab.submit("-M", "11G", "sh", str(script), "1")
    gate.wait_for()
    host.wait_for_sample()
    gate.open()
    assert lab.wait(job) == 1
    later = lab.submit("-M", "auto", "sh", str(script), "2")
    assert lab.wait(later) == 0
    assert lab.job(later)["claim_bytes"] > 10 * GIB
