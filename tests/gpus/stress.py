"""Many starts by several schedulers on the same cards, each job checking that it may be there.

python -m tests.gpus.stress [STARTS]

Two daemons with their own queues and a foreground run share the cards of one host through leases
alone. Real processes, real locks, a fake driver.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fake_nvml import GIB, build
from tests.gpus.host import H200, GpuHost

_CARDS = 4
_LEDGER_CARDS = 16
_TOTAL_MB = 79 << 10


class Stress:
    def __init__(self, folder: Path, library: Path) -> None:
        self.folder = folder
        self.host = GpuHost(folder, library, *[H200] * _CARDS, total=80 * GIB)
        self._program = folder / "tenant"
        source = Path(__file__).with_name("tenant.c")
        subprocess.run(["cc", "-O2", "-o", self._program, source], check=True)
        self._ledger = folder / "ledger"
        self._ledger.write_bytes(bytes(4096))
        self._chance = random.Random(7)
        self.longest = 3000  # microseconds that a job stays

    def work(self, starts: int, **env: str) -> tuple[int, int]:
        """(starts that were counted, violations)."""
        first, second, run = (self.host.lab(**env) for _ in range(3))
        part = starts // 3
        for lab in (first, second):
            lab.ok("submit", "-q", "--file", "-", input=self._lines(part))
        done = run.run("run", "-q", "-", input=self._lines(starts - 2 * part), timeout=1800)
        assert done.returncode == 0, done.stderr
        for lab in (first, second):
            assert lab.wait(timeout=1800) == 0, lab.ok("ls")
        words = struct.unpack_from("18q", self._ledger.read_bytes())
        assert not any(words[:_LEDGER_CARDS]), words
        return words[_LEDGER_CARDS + 1], words[_LEDGER_CARDS]

    def _lines(self, count: int) -> str:
        return "".join(f"{self._line()}\n" for _ in range(count))

    def _line(self) -> str:
        flags = self._chance.choices(
            ("", "--gpus 2", f"--gpu-mem {self._chance.randint(5, 40)}G",
             f"--gpus 2 --gpu-mem {self._chance.randint(5, 30)}G"), (3, 1, 8, 1)
        )[0]  # fmt: skip
        pause = self._chance.randint(0, self.longest)
        return f"{self._program} {self._ledger} {_TOTAL_MB} {pause} #stoker {flags}"

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
