"""Eight small trainings on one real GPU: one at a time, packed by Stoker, packed manually.

python -m bench.gpu [--steps N] [--jobs N]

All runs use the same torch program (tests/hardware/train.py). Wall times include startup, as they
do for a user.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).parent.parent / "tests" / "hardware" / "train.py"


class Lab:
    def __init__(self, steps: int, jobs: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sb-gpu-"))
        self.steps = steps
        self.jobs = jobs
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.env["STOKER_STATE_DIR"] = str(self.root / "state")

    def stoker(self, *words: str) -> str:
        argv = [sys.executable, "-m", "stoker", *words]
        return subprocess.run(argv, env=self.env, check=True, capture_output=True, text=True).stdout

    def command(self, report: Path) -> list[str]:
        return [sys.executable, str(TRAIN), f"--steps={self.steps}", f"--report={report}"]

    def reports(self) -> list[Path]:
        """Report paths that differ only in numbers, so that all commands share one profile."""
        folder = self.root / str(len(list(self.root.iterdir())))
        folder.mkdir()
        return [folder / str(number) for number in range(self.jobs)]

    def run_with_stoker(self, name: str, *flags: str) -> dict[str, Any]:
        reports = self.reports()
        began = time.time()
        for report in reports:
            self.stoker("submit", "-q", *flags, "--", *self.command(report))
        self.stoker("wait", "-q")
        return summary(name, reports, time.time() - began)

    def run_manually(self, name: str, at_once: int) -> dict[str, Any]:
        reports = self.reports()
        began = time.time()
        waiting, running = list(reports), list[subprocess.Popen[bytes]]()
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(subprocess.Popen(self.command(waiting.pop(0)), env=self.env))
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            running = [process for process in running if process.poll() is None]
        return summary(name, reports, time.time() - began)


def summary(name: str, reports: list[Path], wall: float) -> dict[str, Any]:
    facts = [json.loads(report.read_text()) for report in reports]
    steps = sum(fact["steps"] for fact in facts)
    span = max(fact["last"] for fact in facts) - min(fact["first"] for fact in facts)
    overlap = min(f["last"] for f in facts) - max(f["first"] for f in facts)
    rate = sum(fact["steps"] / (fact["last"] - fact["first"]) for fact in facts)
    return {"how": name, "wall_s": wall, "steps": steps, "span_s": span, "overlap_s": overlap,
            "sum_of_rates": rate, "steps_per_wall_s": steps / wall}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--json")
    options = parser.parse_args()
    lab = Lab(options.steps, options.jobs)
    lab.run_manually("warm-up", 2)
    rows = [
        lab.run_with_stoker("stoker, one at a time"),
        lab.run_with_stoker("stoker, --gpu-mem 3G", "--gpu-mem", "3G"),
        lab.run_manually("manual, 4 at once", 4),
        lab.run_manually("manual, 8 at once", 8),
        lab.run_with_stoker("stoker, --gpu-mem auto", "--gpu-mem", "auto"),
    ]
    lab.stoker("daemon", "stop")
    base = rows[0]["steps_per_wall_s"]
    best = max(row["steps_per_wall_s"] for row in rows if row["how"].startswith("manual"))
    print("| method | wall s | steps per wall s | ratio to one at a time | ratio to best manual |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        rate = row["steps_per_wall_s"]
        print(f"| {row['how']} | {row['wall_s']:.1f} | {rate:.0f} | {rate / base:.2f}"
              f" | {rate / best:.2f} |")  # fmt: skip
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
