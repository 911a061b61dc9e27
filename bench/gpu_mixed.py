"""Twelve different trainings on one real GPU: packed by Stoker, and by several fixed rules.

python -m bench.gpu_mixed [--scale X] [--at-once 1,3,4,6,12] [--json FILE]

Six small jobs, five of medium size, and one that saturates the GPU. All methods do the same work,
so the wall times compare their throughput. Nothing tells Stoker how much memory a job needs.
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

TRAIN = Path(__file__).parent.parent / "tests" / "hardware" / "train.py"
# Model and steps of each job, for about ten seconds each on an idle H200.
_JOBS = [*[("mlp", 6000)] * 6, *[("resnet", 1200)] * 3, *[("transformer", 1500)] * 2,
         ("saturating", 150)]  # fmt: skip


class MixedSet:
    def __init__(self, scale: float) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sb-mixed-"))
        self.rounds = 0
        self.jobs = [(model, max(50, int(steps * scale))) for model, steps in _JOBS]
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.env["STOKER_STATE_DIR"] = str(self.root / "state")

    def commands(self) -> list[list[str]]:
        self.rounds += 1  # a number, so that the commands of all rounds have the same profiles
        folder = self.root / str(self.rounds)
        folder.mkdir()
        reports = [folder / str(number) for number in range(len(self.jobs))]
        return [
            [sys.executable, str(TRAIN), "--model", model, f"--steps={steps}", f"--report={report}"]
            for (model, steps), report in zip(self.jobs, reports, strict=True)
        ]

    def by_hand(self, name: str, at_once: int) -> dict[str, Any]:
        began = time.time()
        waiting, running, failed = self.commands(), list[subprocess.Popen[bytes]](), 0
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(subprocess.Popen(waiting.pop(0), env=self.env))
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            failed += sum(bool(process.poll()) for process in running)
            running = [process for process in running if process.returncode is None]
        return {"how": name, "wall_s": time.time() - began, "failed": failed}

    def with_stoker(self, name: str, *flags: str) -> dict[str, Any]:
        lines = "".join(f"{shlex.join(words)}\n" for words in self.commands())
        began = time.time()
        ids = self.stoker("submit", "-q", *flags, "--file", "-", stdin=lines).split()
        self.stoker("wait", "-q", *ids, check=False)
        wall = time.time() - began
        jobs = json.loads(self.stoker("show", "--json", *ids))["jobs"]
        oom = sum(a["cause"] == "gpu_oom" for job in jobs for a in job["history"])
        failed = sum(job["state"] != "done" for job in jobs)
        return {"how": name, "wall_s": wall, "failed": failed, "out_of_memory": oom}

    def stoker(self, *words: str, check: bool = True, stdin: str = "") -> str:
        argv = [sys.executable, "-m", "stoker", *words]
        done = subprocess.run(argv, env=self.env, check=check, input=stdin, capture_output=True,
                              text=True)  # fmt: skip
        return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--at-once", default="1,3,4,6,12")
    parser.add_argument("--json")
    options = parser.parse_args()
    mixed = MixedSet(options.scale)
    rows: list[dict[str, Any]] = []

    def add(row: dict[str, Any]) -> None:
        rows.append(row)
        print(f"{row['how']}: {row['wall_s']:.1f} s", file=sys.stderr, flush=True)

    for name in ("unknown", "known"):
        add(mixed.with_stoker(f"Stoker, --gpu-mem auto, {name}", "--gpu-mem", "auto"))
    mixed.stoker("daemon", "stop")
    for count in map(int, options.at_once.split(",")):
        add(mixed.by_hand(f"by hand, {count} at once", count))
    best = min(row["wall_s"] for row in rows if row["how"].startswith("by hand"))
    print("| method | wall s | throughput, best by hand is 1 | failed | out of memory |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(f"| {row['how']} | {row['wall_s']:.1f} | {best / row['wall_s']:.2f}"
              f" | {row['failed']} | {row.get('out_of_memory', '')} |")  # fmt: skip
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
