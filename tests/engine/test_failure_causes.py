"""Causes of failures, from logs of real programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.outcome.failure_causes import diagnose
from stoker.engine.outcome.retry import DETERMINISTIC

CAUSES = {
    "gpu_oom", "host_oom", "disk_full", "missing_program", "missing_script", "missing_module",
    "gpu_error", "environment_failed", "container_failed",
}  # fmt: skip

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 139.80 GiB of which 1.00 GiB is free. If reserved but unallocated memory is large "
    "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
EPOCHS = "".join(f"epoch {n}: loss 0.{n}\n" for n in range(400))


def trace(error: str, code: str = "loss.backward()") -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 12, in <module>\n'
        f"    {code}\n"
        "    ^^^^^^^^^^^^^^^\n"
        f"{error}\n"
    )


def cause(
    log: str | bytes,
    exit_code: int | None = 1,
    *,
    gpu_was_full: bool = False,
) -> str | None:
    tail = log.encode() if isinstance(log, str) else log
    found = diagnose(tail, exit_code, gpu_was_full=gpu_was_full)
    return None if found is None else found[0]


# -- what errors look like -----------------------------------------------------------------------

ERRORS = [
    ("gpu_oom", OOM),
    ("gpu_oom", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB"),
    ("gpu_oom", "torch.AcceleratorError: CUDA error: out of memory"),
    ("gpu_oom", "RuntimeError: CUDA error: out of memory"),
    ("gpu_oom", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8 GiB)"),
    ("gpu_oom", "RuntimeError: CUDA driver error: out of memory"),
    ("gpu_oom", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."),
    ("gpu_oom", "OutOfMemoryError: CUDA out of memory."),
    ("gpu_oom", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
                "trying to allocate 4294967296 bytes."),
    ("gpu_oom", "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 4 bytes"),
    ("gpu_oom", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes"),
    ("gpu_oom", "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out "
                "of memory"),
    ("gpu_oom", "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
                "CUDA_ERROR_OUT_OF_MEMORY"),
    ("gpu_oom", "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when "
                "allocating tensor with shape[9,9] on /job:localhost/device:GPU:0"),
    ("gpu_oom", "tensorflow.python.framework.errors_impl.ResourceExhaustedError: "
                "{{function_node __wrapped__Mul}} failed to allocate memory [Op:Mul]"),
    ("gpu_oom", "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: rmm/cuda.hpp"),
    ("gpu_oom", "ValueError: Free memory on device (1.0/79.1 GiB) on startup is less than desired "
                "GPU memory utilization (0.9, 71.2 GiB)."),
    ("host_oom", "MemoryError"),
    ("host_oom", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB"),
    ("host_oom", "OSError: [Errno 12] Cannot allocate memory"),
    ("host_oom", "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: "
                 "can't allocate memory: you tried to allocate 40 bytes. Error code 12"),
    ("host_oom", "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when "
                 "allocating tensor on /job:localhost/device:CPU:0 by allocator cpu"),
    ("host_oom", "ImportError: a.so: failed to map segment from shared object: Cannot allocate "
                 "memory"),
    ("host_oom", "RuntimeError: DataLoader worker (pid 41) is killed by signal: Killed. "),
    ("disk_full", "OSError: [Errno 28] No space left on device: 'ckpt.pt'"),
    ("disk_full", "OSError: [Errno 122] Disk quota exceeded"),
    ("missing_module", "ModuleNotFoundError: No module named 'einops'"),
    ("missing_module", "ImportError: cannot import name 'a' from 'b' (/x/b.py)"),
    ("missing_module", "ImportError: libgomp.so.1: cannot allocate memory in static TLS block"),
    ("gpu_error", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    ("gpu_error", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("gpu_error", "RuntimeError: CUDA error: device-side assert triggered"),
    ("gpu_error", "RuntimeError: CUDA error: unspecified launch failure"),
    ("gpu_error", "pynvml.NVMLError_GpuIsLost: GPU is lost"),
    ("gpu_error", "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970"),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "error"), ERRORS)
def test_exception_at_the_end_is_the_cause(expected: str, error: str) -> None:
    log = EPOCHS + trace(error)
    found = diagnose(log.encode(), 1, gpu_was_full=False)
    assert found is not None and found[0] == expected
    assert " ".join(error.split()).startswith(found[1].split(" GPU 0 has")[0][:150])


@pytest.mark.parametrize(
    ("expected", "log"),
    [
        ("gpu_oom", "terminate called after throwing an instance of "
                    "'thrust::system::system_error'\n  what():  cudaErrorMemoryAllocation: out of "
                    "memory\n"),
        ("gpu_oom", "ggml: allocating 900.00 MiB on device 0: cudaMalloc failed: out of memory\n"),
        ("gpu_oom", "Error: CUDA out of memory. Try reducing the batch size\n"),
        ("host_oom", "terminate called after throwing an instance of 'std::bad_alloc'\n"),
        ("host_oom", "run.sh: fork: Cannot allocate memory\n"),
        ("disk_full", "tee: log: No space left on device\n"),
        ("gpu_error", "CUDA error 700 at a.cu:12: an illegal memory access was encountered\n"),
        ("missing_module", "/usr/bin/python3: No module named einops\n"),
    ],
)  # fmt: skip
def test_errors_without_tracebacks_have_a_cause(expected: str, log: str) -> None:
    assert cause(EPOCHS + log + "bye\n") == expected


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (2, "python: can't open file '/x/train.py': [Errno 2] No such file or directory"),
        (2, "/opt/venv/bin/python3.12: can't open file '/x': [Errno 2] No such file or directory"),
        (127, "bash: train.sh: No such file or directory"),
        (127, "/usr/bin/bash: jobs/train.sh: No such file or directory"),
        (2, "sh: 0: cannot open train.sh: No such file"),
        (127, "zsh: can't open input file: train.sh"),
    ],
)
def test_interpreter_without_its_script_is_a_missing_script(code: int, line: str) -> None:
    found = diagnose(f"{line}\n".encode(), code, gpu_was_full=False)
    assert found == ("missing_script", line)
    assert cause(f"{line}\n", 1) is None


@pytest.mark.parametrize(
    "line",
    [
        "bash: line 1: bin/train: No such file or directory",
        "bash: bin/train: No such file or directory",
        "bash: train: command not found",
    ],
)
def test_missing_program_is_not_a_missing_script(line: str) -> None:
    assert cause(f"{line}\n", 127) == "missing_program"


@pytest.mark.parametrize(
    ("code", "log", "evidence"),
    [
        (
            127,
            "run.sh: line 3: nvcc: command not found\n",
            "run.sh: line 3: nvcc: command not found",
        ),
        (127, "/bin/sh: 1: foo: not found", "/bin/sh: 1: foo: not found"),
        (127, "", "exit code 127 of the shell"),
        (126, "sh: ./train.py: Permission denied\n", "sh: ./train.py: Permission denied"),
        (126, "", "exit code 126 of the shell"),
        (127, trace(OOM) + "sh: bye: not found\n", "sh: bye: not found"),
    ],
)
def test_exit_code_of_the_shell_means_a_missing_program(code: int, log: str, evidence: str) -> None:
    found = diagnose(log.encode(), code, gpu_was_full=False)
    assert found == ("missing_program", evidence)


# -- what the host saw ---------------------------------------------------------------------------


def test_kill_by_another_process_is_not_lack_of_host_memory() -> None:
    assert cause("", None) is None
    assert cause("run.sh: line 1: 4711 Killed  python train.py\n", 137) is None


def test_cause_in_the_log_comes_before_a_killed_helper_process() -> None:
    assert cause(trace(OOM), 1) == "gpu_oom"


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: Unable to initialize backend 'cuda': no supported devices found",
    ],
)
def test_errors_that_do_not_mention_memory_count_only_if_memory_was_short(error: str) -> None:
    assert cause(trace(error)) is None
    assert cause(trace(error), gpu_was_full=True) == "gpu_oom"
    assert cause("CUDA out of memory, batch size halved\n" + trace(error)) == "gpu_oom"


def test_full_gpu_alone_is_not_a_cause() -> None:
    assert cause(trace("KeyError: 3"), gpu_was_full=True) is None


# -- which of many texts counts ------------------------------------------------------------------

CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
TORCHRUN = trace("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ") + (
    "=====\ntrain.py FAILED\n-----\nFailures:\n  <NO_OTHER_FAILURES>\n"
    "Root Cause (first observed failure):\n  exitcode  : 1 (pid: 4711)\n=====\n"
)
GOODBYE = "".join(f"wandb: Run history {n}\n" for n in range(40))


@pytest.mark.parametrize(
    ("expected", "log"),
    [
        # survived
        (None, "retrying after CUDA out of memory, batch size halved\n" + trace("KeyError: 3")),
        (None, "retrying after CUDA out of memory, batch size halved\n"),
        (None, "WARNING: CUDA out of memory\nvalidation failed\n"),
        (None, "W bfc_allocator: ran out of memory; RESOURCE_EXHAUSTED: out of memory, this is "
               "not a failure\n"),
        (None, trace(OOM) + "batch size halved\n" + "validation failed\n"),
        (None, trace(OOM) + EPOCHS[:4000] + trace("KeyError: 3")),
        (None, trace(OOM) + EPOCHS),
        (None, "No space left on device\n" + EPOCHS),
        (None, trace("KeyError: 3", code="if 'CUDA out of memory' in str(error):")),
        # the last one counts
        ("disk_full", trace(OOM) + "\n" + trace("OSError: [Errno 28] No space left on device")),
        ("gpu_oom", trace("OSError: [Errno 28] No space left on device") + trace(OOM)),
        # goodbyes
        ("gpu_oom", trace(OOM) + GOODBYE),
        ("gpu_oom", trace(OOM) + "/x.py:254: UserWarning: There appear to be leaked semaphores\n"),
        ("gpu_oom", trace(OOM) + "Exception ignored in: <function tqdm.__del__ at 0x7f>\n"
                    + trace("ImportError: sys.meta_path is None, Python is likely shutting down")),
        (None, trace("KeyError: 3") + "Exception ignored in: <function tqdm.__del__ at 0x7f>\n"
               + trace("ImportError: sys.meta_path is None, Python is likely shutting down")),
        # chains
        ("gpu_oom", trace(OOM) + CHAIN + trace("KeyError: 3")),
        ("gpu_oom", trace(OOM) + DIRECT + trace("RuntimeError: training failed")),
        ("missing_module", trace(OOM) + CHAIN + trace("ModuleNotFoundError: No module named 'a'")),
        (None, trace("ModuleNotFoundError: No module named 'a'") + CHAIN + trace("KeyError: 3")),
        # other processes
        ("gpu_oom", trace(OOM) + TORCHRUN),
        ("missing_module", trace("ModuleNotFoundError: No module named 'einops'") + TORCHRUN),
        (None, trace("KeyError: 3") + TORCHRUN),
        ("gpu_oom", "CUDA error: out of memory\n" + trace("subprocess.CalledProcessError: x")),
        ("gpu_oom", trace(OOM) + trace("torch.distributed.DistBackendError: NCCL error in: a.cpp")),
        ("gpu_oom", trace("torch.distributed.DistBackendError: NCCL error in: a.cpp")
                    + "Last error: Cuda failure 2 'out of memory'\n"),
        ("gpu_error", trace("KeyError: 3")
                      + trace("torch.distributed.DistBackendError: NCCL error in: a.cpp")),
        # advice under other errors of CUDA
        (None, trace("torch.AcceleratorError: CUDA error: invalid device ordinal")
               + "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"),
        # quotas of web services
        (None, trace("google.api_core.exceptions.ResourceExhausted: 429 RESOURCE_EXHAUSTED quota")),
        # long messages
        ("gpu_oom", trace("tensorflow.errors_impl.ResourceExhaustedError: Graph execution error:")
                    + "  Detected at node\n" * 50 + "OOM when allocating tensor with shape[1]\n"),
    ],
)  # fmt: skip
def test_error_that_ended_the_job_counts_and_survived_errors_do_not(
    expected: str | None, log: str
) -> None:
    assert cause(EPOCHS + log) == expected


# -- how logs look -------------------------------------------------------------------------------


def test_success_has_no_cause() -> None:
    assert cause(trace(OOM), 0, gpu_was_full=True) is None


def test_progress_bars_do_not_hide_the_error() -> None:
    bar = "".join(f"\r{n}%|{'#' * n}" for n in range(100))
    assert cause(bar + trace(OOM) + bar) == "gpu_oom"
    assert cause((trace(OOM) + bar).replace("\n", "\r\n")) == "gpu_oom"


@pytest.mark.parametrize(
    "prefix", ["[rank0]: ", "[default3]:", "(train pid=4711) ", "[1,0]<stderr>:", "3: ", "  | "]
)
def test_prefixes_of_launchers_are_ignored(prefix: str) -> None:
    lines = trace("ModuleNotFoundError: No module named 'a'").splitlines()
    assert cause("".join(f"{prefix}{line}\n" for line in lines)) == "missing_module"


def test_colors_and_boxes_are_ignored() -> None:
    box = (
        "\x1b[31m╭────── \x1b[1mTraceback \x1b[0m(most recent call last) ──────╮\n"
        "│ 12 if 'CUDA out of memory' in str(error): │\n╰─────────╯\n"
    )
    assert cause(box + "\x1b[1;91mModuleNotFoundError: \x1b[0mNo module named 'a'\n") == (
        "missing_module"
    )
    assert cause(box + "\x1b[1;91mKeyError: \x1b[0m3\n") is None


def test_evidence_is_one_short_clean_line() -> None:
    log = b"\xff\x1b[31m" + b"x" * 9000 + b"\x07\xfe No space left on device \0" + b"y" * 9000
    found = diagnose(log, 1, gpu_was_full=False)
    assert found is not None and found[0] == "disk_full"
    assert "No space left on device" in found[1]
    assert len(found[1]) <= 200 and found[1].isprintable()


def test_log_before_the_last_64_kib_does_not_count() -> None:
    assert cause(trace(OOM) + "x" * 70_000) is None


PIECES = st.sampled_from(
    [error.encode() + b"\n" for _, error in ERRORS]
    + [trace(error).encode() for _, error in ERRORS[::5]]
    + [CHAIN.encode(), TORCHRUN.encode(), b"Traceback (most recent call last)", b"\r", b"\n"]
    + [b"\x1b[", b"\x1b]", b"retrying ", b"Exception ignored in: x\n", b"\xff", b"  File\n"]
)


@given(
    st.lists(PIECES | st.binary(max_size=50), max_size=30).map(b"".join),
    st.none() | st.integers(0, 255),
    st.booleans(),
)
def test_any_log_has_a_known_cause_or_none(tail: bytes, exit_code: int | None, full: bool) -> None:
    found = diagnose(tail, exit_code, gpu_was_full=full)
    if found is not None:
        assert exit_code != 0
        assert found[0] in CAUSES
        assert found[1] and len(found[1]) <= 200 and found[1].isprintable()


@pytest.mark.parametrize(
    "rubbish",
    [b"\x1b[" * 32768, b"\x1b[0;" * 16384, b"\r" * 65536, b"(a pid=" * 9362, b"a" * 65536,
     b"Traceback (most recent call last)\n" * 1900, b"oom when allocating " * 3276, bytes(65536)],
)  # fmt: skip
def test_random_bytes_have_no_cause(rubbish: bytes) -> None:
    assert cause(rubbish) in (None, "gpu_oom")


def test_deterministic_causes_are_causes() -> None:
    assert DETERMINISTIC < CAUSES
