"""MPS started by hand, as a user without Stoker does it: the comparison for `--share mps`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONTROL = "nvidia-cuda-mps-control"


def has_mps() -> bool:
    """Whether NVIDIA's program is on the PATH."""
    return shutil.which(_CONTROL) is not None


@contextmanager
def manual_mps(env: dict[str, str], gpu: str) -> Iterator[dict[str, str]]:
    """Start a control daemon for one GPU (a UUID); yields the environment of its clients."""
    # Not in the folder of the benchmark: paths of sockets have at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    (folder / "log").mkdir()
    env = {
        **env,
        "CUDA_VISIBLE_DEVICES": gpu,
        "CUDA_MPS_PIPE_DIRECTORY": str(folder),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
    }
    with open(folder / "log" / "start", "wb") as log:  # a pipe would stay open with the daemon
        subprocess.run([_CONTROL, "-d"], env=env, check=True, stdout=log, stderr=log)
    try:
        yield env
    finally:
        subprocess.run([_CONTROL], input=b"quit\n", env=env, check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
