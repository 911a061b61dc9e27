"""Eight small trainings on one real GPU: one at a time, packed by Stoker, packed by hand, with MPS.

python -m bench.gpu [--steps N] [--jobs N] [--model mlp|resnet|transformer] [--repeats N] [--json F]

All runs use the same torch program (tests/hardware/train.py). Wall times include startup, as they
do for a user. One at a time is measured only once. The rows with MPS are left out where NVIDIA's
program for it is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.gpu_mps import has_mps, manual_mps

TRAIN = Path(__file__).parent.parent / "tests" / "hardware" / "train.py"


class Lab:
    def __init__(self, steps: int, jobs: int, model: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sb-gpu-"))
        self.steps = steps
        self.jobs = jobs
        self.model = model
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.env["STOKER_STATE_DIR"] = str(self.root / "state")

    def stoker(self, *words: str, stdin: str = "") -> str:
        argv = [sys.executable, "-m", "stoker", *words]
        done = subprocess.run(argv, env=self.env, check=True, input=stdin, capture_output=True,
                              text=True)  # fmt: skip
        return done.stdout

    def command(self, report: Path) -> list[str]:
        model = [] if self.model == "mlp" else ["--model", self.model]
        return [sys.executable, str(TRAIN), *model, f"--steps={self.steps}", f"--report={report}"]

    def reports(self, profile: str = "known") -> list[Path]:
        """Report paths that differ only in numbers, so that all commands share one profile."""
        folder = self.root / profile
        folder = folder / str(len(list(folder.iterdir())) if folder.exists() else 0)
        folder.mkdir(parents=True)
        return [folder / str(number) for number in range(self.jobs)]

    def run_with_stoker(self, name: str, *flags: str, profile: str = "known") -> dict[str, Any]:
        reports = self.reports(profile)
        lines = "".join(f"{shlex.join(self.command(report))}\n" for report in reports)
        began = time.time()
        ids = self.stoker("submit", "-q", *flags, "--file", "-", stdin=lines).split()
        self.stoker("wait", "-q", *ids)
        row = summary(name, reports, time.time() - began)
        if "mps" in flags:
            jobs = json.loads(self.stoker("show", "--json", *ids))["jobs"]
            row["under_mps"] = sum(job["under_mps"] for job in jobs)
        return row

    def run_manually(
        self, name: str, at_once: int, env: dict[str, str] | None = None
    ) -> dict[str, Any]:
        reports = self.reports()
        began = time.time()
        waiting, running = list(reports), list[subprocess.Popen[bytes]]()
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(subprocess.Popen(self.command(waiting.pop(0)), env=env or self.env))
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            running = [process for process in running if process.poll() is None]
        return summary(name, reports, time.time() - began)

    def run_manually_with_mps(self, name: str, at_once: int) -> dict[str, Any]:
        """MPS is started before the time counts, as by a user who leaves it running."""
        gpu = json.loads(self.stoker("gpus", "--json"))["gpus"][0]["uuid"]
        with manual_mps(self.env, gpu) as env:
            return self.run_manually(name, at_once, env)


def summary(name: str, reports: list[Path], wall: float) -> dict[str, Any]:
    facts = [json.loads(report.read_text()) for report in reports]
    steps = sum(fact["steps"] for fact in facts)
    span = max(fact["last"] for fact in facts) - min(fact["first"] for fact in facts)
    overlap = min(f["last"] for f in facts) - max(f["first"] for f in facts)
    rate = sum(fact["steps"] / (fact["last"] - fact["first"]) for fact in facts)
    print(f"{name}: {wall:.1f} s", file=sys.stderr, flush=True)
    return {"how": name, "wall_s": wall, "steps": steps, "span_s": span, "overlap_s": overlap,
            "sum_of_rates": rate, "steps_per_wall_s": steps / wall}  # fmt: skip


def rows_of(lab: Lab, memory: str, with_mps: bool, repeat: int) -> list[dict[str, Any]]:
    """One repeat: every method once, in the same order."""
    fresh = "fresh_" + "abcdefghij"[repeat]  # its letters make it another profile
    auto = ("--gpu-mem", "auto")
    rows = [
        lab.run_manually("manual, 4 at once", 4),
        lab.run_manually("manual, 8 at once", 8),
        lab.run_with_stoker("stoker, --gpu-mem auto, unknown profile", *auto, profile=fresh),
        lab.run_with_stoker("stoker, --gpu-mem auto, known profile", *auto, profile=fresh),
        lab.run_with_stoker(f"stoker, --gpu-mem {memory}", "--gpu-mem", memory),
    ]
    if with_mps:
        mps = ("--share", "mps", "--gpu-mem")
        rows += [
            lab.run_manually_with_mps("manual, 8 at once with MPS", 8),
            lab.run_with_stoker(f"stoker, --share mps --gpu-mem {memory}", *mps, memory),
            lab.run_with_stoker("stoker, --share mps --gpu-mem auto", *mps, "auto", profile=fresh),
        ]
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    base = rows[0]["steps_per_wall_s"]
    best: dict[bool, float] = {}  # by hand, without and with MPS
    for row in rows:
        if row["how"].startswith("manual"):
            kind = "MPS" in row["how"]
            best[kind] = max(best.get(kind, 0.0), row["steps_per_wall_s"])
    print("| method | wall s | steps per wall s | ratio to one at a time | ratio to best manual |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        rate = row["steps_per_wall_s"]
        manual = best["mps" in row["how"].lower()]
        note = f" ({row['under_mps']} jobs under MPS)" if "under_mps" in row else ""
        print(f"| {row['how']}{note} | {row['wall_s']:.1f} | {rate:.0f} | {rate / base:.2f}"
              f" | {rate / manual:.2f} |")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--model", default="mlp", choices=("mlp", "resnet", "transformer"))
    parser.add_argument("--gpu-mem", default="3G", help="memory that a job declares")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json")
    options = parser.parse_args()
    lab = Lab(options.steps, options.jobs, options.model)
    lab.run_manually("warm-up", 2)
    with_mps = has_mps()
    one = lab.run_with_stoker("stoker, one at a time")
    repeats = [
        [one, *rows_of(lab, options.gpu_mem, with_mps, repeat)] for repeat in range(options.repeats)
    ]
    lab.stoker("daemon", "stop")
    for number, rows in enumerate(repeats, 1):
        print(f"repeat {number}, {options.model}:\n")
        print_table(rows)
        print()
    if not with_mps:
        print("without rows for MPS: nvidia-cuda-mps-control is not on the PATH")
    if options.json:
        Path(options.json).write_text(json.dumps(repeats, indent=1))


if __name__ == "__main__":
    main()
