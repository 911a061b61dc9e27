"""The C compiler for tests: that of the system, else that of the package `ziglang`."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


def compile_c(source: Path, target: Path, *flags: str) -> None:
    """Compile one file. Skips the test if there is no compiler."""
    subprocess.run([*_compiler(), *flags, "-o", str(target), str(source)], check=True)


def _compiler() -> list[str]:
    if "CC" in os.environ:
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name) is not None:
            return [name]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    pytest.skip("needs a C compiler")
