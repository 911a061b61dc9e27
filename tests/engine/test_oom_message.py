"""Sizes in the out-of-memory messages of libraries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.outcome.oom_message import OomMessage, parse_oom

MIB, GIB = 1 << 20, 1 << 30

TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 150.00 GiB. GPU 0 has a total"
    " capacity of 139.80 GiB of which 137.50 GiB is free. Including non-PyTorch memory, this"
    " process has 2.25 GiB memory in use. Of the allocated memory 1.50 GiB is allocated by"
    " PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated."
)
TORCH_1 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.50 GiB total"
    " capacity; 9.50 GiB already allocated; 10.00 MiB free; 9.75 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (TORCH, OomMessage(150 * GIB, 3 * GIB // 2, 9 * GIB // 4)),
        (TORCH_1, OomMessage(20 * MIB, 19 * GIB // 2)),
        (
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
            " 161061273600 bytes.",
            OomMessage(150 * GIB),
        ),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 1073741824 bytes.", OomMessage(GIB)),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 161,061,273,600 bytes"
            " (allocated so far: 1,073,741,824 bytes).",
            OomMessage(150 * GIB, GIB),
        ),
        (
            "OOM when allocating tensor with shape[1024,1024,256] and type float on"
            " /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
            OomMessage(GIB),
        ),
        (
            "failed to allocate 150.00GiB (161061273600 bytes) from device:"
            " CUDA_ERROR_OUT_OF_MEMORY",
            OomMessage(150 * GIB),
        ),
    ],
)
def test_sizes_of_each_library_are_found(line: str, message: OomMessage) -> None:
    assert parse_oom(f"epoch 1\n{line}\nbye\n".encode()) == message


def test_last_message_of_a_log_counts() -> None:
    first = b"CUDA out of memory. Tried to allocate 1.00 GiB\nretrying\n"
    assert parse_oom(first + TORCH.encode()) == parse_oom(TORCH.encode())


def test_message_without_a_size_has_no_need() -> None:
    assert parse_oom(b"torch.AcceleratorError: CUDA error: out of memory\n") is None


def test_program_needs_its_tensors_and_the_failed_allocation() -> None:
    message = parse_oom(TORCH.encode())
    assert message is not None
    assert message.least == 150 * GIB + 3 * GIB // 2
    assert message.enough == 150 * GIB + 9 * GIB // 4


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_accepted(tail: bytes) -> None:
    parse_oom(tail)
    parse_oom(b"Tried to allocate " + tail)
