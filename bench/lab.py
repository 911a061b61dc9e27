"""The temp folder of a benchmark, with the compiled C programs and a home folder.

Paths stay short because several tools create unix sockets in it (the limit is 108 bytes).

Small files are deleted only at the end. ext4 does not reuse a freed inode for some minutes and
skips all of them, one by one, for every new file. Deleting files after each run made tools that
keep a few files per job two to four times slower in the next run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench.process import ToolError

SOURCES = Path(__file__).parent


@dataclass(frozen=True)
class Lab:
    """Compiled programs, a clean environment, and new folders on demand."""

    root: Path
    environ: dict[str, str]
    numbers: Iterator[int] = field(default_factory=count)

    @property
    def stamp(self) -> Path:
        return self.root / "stamp"

    @property
    def reference(self) -> Path:
        return self.root / "reference"

    def fresh_path(self) -> Path:
        """A path below the lab that does not exist yet."""
        return self.root / str(next(self.numbers))

    def fresh_folder(self) -> Path:
        folder = self.fresh_path()
        folder.mkdir()
        return folder


def drop_large_files(folder: Path, above: int = 2**20) -> None:
    """Free the disk space of a finished run without freeing many inodes."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size > above:
            path.unlink()


def peers_folder() -> Path:
    """The virtual environment that setup.sh fills; PEERS overrides it."""
    default = Path(tempfile.gettempdir()) / "stoker-bench-peers"
    return Path(os.environ.get("PEERS", default))


def clean_environment(home: Path) -> dict[str, str]:
    """The same variables for every tool, so that user settings do not change results."""
    search = [os.environ.get("PATH", os.defpath), str(peers_folder() / "bin")]
    return {
        "PATH": os.pathsep.join(search),
        "HOME": str(home),
        "USER": "bench",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/sh",
        "PARALLEL_SHELL": "/bin/sh",
    }


def compile_c(name: str, target: Path, *flags: str) -> None:
    """Compile one of the C programs in this folder; raises ToolError."""
    if shutil.which("gcc") is None:
        raise ToolError("gcc is needed to compile the stamp and reference programs")
    command = ["gcc", "-O2", "-Wall", *flags, "-o", str(target), str(SOURCES / f"{name}.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(f"gcc could not compile {name}.c: {done.stderr.strip()}")


@contextmanager
def open_lab(keep: bool = False) -> Iterator[Lab]:
    """A lab that is removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="sb-"))
    try:
        # One home folder for the whole benchmark: GNU parallel measures the machine on first use
        # and stores the result there; with a new home it would do so in every run.
        home = root / "home"
        (home / ".parallel").mkdir(parents=True)
        (home / ".parallel" / "will-cite").touch()
        compile_c("stamp", root / "stamp", "-static")
        compile_c("reference", root / "reference")
        yield Lab(root, clean_environment(home))
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
