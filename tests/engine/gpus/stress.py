"""Many starts by several schedulers on the same GPUs; each job checks for overcommitment.

python -m tests.engine.gpus.stress [STARTS]

Two daemons, of different users when run as root, and a foreground run share the GPUs of one host
only through leases. Real processes, real locks, a fake driver.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from tests.compiler import compile_c
from tests.engine.gpus.host import H200, GpuHost, GpuLab
from tests.fake_nvml import GIB, build

_GPU_COUNT = 4
_LEDGER_GPUS = 16
_TOTAL_MB = 79 << 10
_NOBODY = 65534


_AS_NOBODY = [
    "setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--inh-caps=-all",
    "--bounding-set=-all",
]  # fmt: skip


def _shared_python() -> str | None:
    """A Python of our version that another user can execute; None unless we are root."""
    if os.geteuid() != 0:
        return None
    check = (
        "import os, sys; assert os.access(sys.executable, os.X_OK);"
        f"assert sys.version_info[:2] == {sys.version_info[:2]}"
    )
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        tried = subprocess.run([*_AS_NOBODY, path, "-c", check], stderr=subprocess.DEVNULL)
        if tried.returncode == 0:
            return path
    return None


class Stress:
    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.host = GpuHost(folder, library, *[H200] * _GPU_COUNT, total=80 * GIB)
        self._program = folder / "overcommit_check"
        source = Path(__file__).with_name("overcommit_check.c")
        compile_c(source, self._program, "-O2")
        self._usage_file = folder / "usage"
        self._usage_file.write_bytes(bytes(4096))
        self._usage_file.chmod(0o666)
        self._chance = random.Random(7)

    def work(self, starts: int) -> tuple[int, int]:
        """(counted starts, violations)."""
        first, second, run = (self.host.lab() for _ in range(3))
        self._give_to_another_user(second)
        part = starts // 3
        for lab in (first, second):
            lab.ok("submit", "-q", "--file", "-", input=self._lines(part))
        done = run.run("run", "-q", "-", input=self._lines(starts - 2 * part))
        assert done.returncode == 0, done.stderr
        for lab in (first, second):
            assert lab.wait() == 0, lab.ok("ls")
        return self.counted()

    def counted(self) -> tuple[int, int]:
        """(starts, violations) so far."""
        words = struct.unpack_from("18q", self._usage_file.read_bytes())
        return words[_LEDGER_GPUS + 1], words[_LEDGER_GPUS]

    def start_job(self, gpu: int, seconds: int) -> subprocess.Popen[bytes]:
        """Start one of the jobs without a scheduler."""
        words = [
            str(self._program),
            str(self._usage_file),
            str(_TOTAL_MB),
            str(seconds * 1_000_000),
        ]
        return subprocess.Popen(words, env={"CUDA_VISIBLE_DEVICES": str(gpu)})

    def _give_to_another_user(self, lab: GpuLab) -> None:
        """Make another user the owner of a queue, if possible."""
        python = _shared_python()
        if python is None:
            return
        os.chown(lab.folder, _NOBODY, _NOBODY)
        for folder in (self.folder, *self.folder.parents):
            if folder.stat().st_uid == 0 and folder != Path("/"):
                folder.chmod(folder.stat().st_mode | 0o011)
        lab.command = [*_AS_NOBODY, python, "-m", "stoker"]
        lab.env["PYTHONPATH"] = str(self._shared_packages())

    def _shared_packages(self) -> Path:
        """Copy Stoker and the NVML binding: the other user may not have access to the
        environment."""
        packages = self.folder / "packages"
        if not packages.exists():
            for name in ("stoker", "pynvml"):
                source = Path(str(import_module(name).__file__))
                if source.name == "__init__.py":
                    shutil.copytree(source.parent, packages / name)
                else:
                    shutil.copy(source, packages / source.name)
        return packages

    def _lines(self, count: int) -> str:
        return "".join(f"{self._line()}\n" for _ in range(count))

    def _line(self) -> str:
        flags = self._chance.choices(
            ("", "--gpus 2", f"--gpu-mem {self._chance.randint(5, 40)}G",
             f"--gpus 2 --gpu-mem {self._chance.randint(5, 30)}G"), (3, 1, 8, 1)
        )[0]  # fmt: skip
        pause = self._chance.randint(0, 3000)
        return f"{self._program} {self._usage_file} {_TOTAL_MB} {pause} #stoker {flags}"

    def close(self) -> None:
        self.host.close()


def main() -> None:
    starts = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        stress = Stress(Path(name), build(Path(name)))
        began = time.monotonic()
        try:
            counted, violations = stress.work(starts)
        finally:
            stress.close()
    took = time.monotonic() - began
    print(f"{counted} starts, {violations} violations, {took:.0f} s")
    raise SystemExit(bool(violations) or counted != starts)


if __name__ == "__main__":
    main()
