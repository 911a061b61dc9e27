"""Cold and warm starts of Python jobs, from `stoker submit` to the end of the job.

python -m bench.warm [--fake SECONDS] [--repeats N] [--trials N] [--parallel N]

Without --fake, the jobs import torch and use a GPU: `torch.ones(1).cuda()`, then trials of about
two seconds of training. With it, they import a module that computes for this long, on simulated
GPUs. Cold and warm runs alternate. The first warm run is listed on its own, because it starts the
fork server.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

_FAKE_MODULE = """
import time
while time.process_time() < {seconds}: pass
"""
_ONE = {True: "import fake_torch", False: "import torch; torch.ones(1).cuda()"}
_TRIAL = {
    True: """
import fake_torch, time
began = time.perf_counter()
while time.perf_counter() < began + 2: pass
""",
    False: """
import time, torch
began = time.perf_counter()
model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model.cuda()
optimizer = torch.optim.Adam(model.parameters())
data, labels = torch.randn(256, 784).cuda(), torch.randint(10, (256,)).cuda()
while time.perf_counter() < began + 2:
    loss = torch.nn.functional.cross_entropy(model(data), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.synchronize()
""",
}


class Lab:
    def __init__(self, fake: float | None, parallel: int) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="sb-warm-"))
        self.is_fake = fake is not None
        self.parallel = parallel
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self.env["STOKER_STATE_DIR"] = str(self.root / "state")
        if fake is not None:
            modules = self.root / "modules"
            modules.mkdir()
            (modules / "fake_torch.py").write_text(_FAKE_MODULE.format(seconds=fake))
            self.env |= {"PYTHONPATH": str(modules), "STOKER_DEVICES": str(parallel)}
        (self.root / "one.py").write_text(_ONE[self.is_fake])
        (self.root / "trial.py").write_text(_TRIAL[self.is_fake])
        self.module = "fake_torch" if self.is_fake else "torch"

    def stoker(self, *words: str, input: str | None = None) -> str:
        argv = [sys.executable, "-m", "stoker", *words]
        done = subprocess.run(argv, env=self.env, cwd=self.root, check=True, input=input,
                              capture_output=True, text=True)  # fmt: skip
        return done.stdout

    def run_one(self, *flags: str) -> float:
        """Seconds from the start of `stoker submit` to the end of the job."""
        began = time.time()
        job = self.stoker("submit", "-q", *flags, "--", sys.executable, "one.py").strip()
        self.stoker("wait", "-q", job)
        shown = self._job(job)
        if shown["state"] != "done" or any(e["kind"] == "cold_start" for e in shown["events"]):
            raise SystemExit(f"bench: job {job} {shown['state']}: {shown['events']}")
        return datetime.fromisoformat(shown["ended_at"]).timestamp() - began

    def _job(self, job: str) -> Any:
        return json.loads(self.stoker("show", job, "--json"))["jobs"][0]

    def run_trials(self, trials: int, *flags: str) -> float:
        """Seconds from the start of `stoker submit` to the end of all trials."""
        share = () if self.is_fake else ("--gpu-mem", "2G")
        lines = "".join(f"{sys.executable} trial.py --seed {n}\n" for n in range(trials))
        began = time.time()
        self.stoker("submit", "-q", *share, *flags, "--file", "-", input=lines)
        self.stoker("wait", "-q")
        return time.time() - began


def measure(lab: Lab, repeats: int, trials: int) -> list[dict[str, Any]]:
    warm = f"--warm={lab.module}"
    lab.run_one()  # caches of the file system
    first = lab.run_one(warm)
    one: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(repeats):
        one["cold"].append(lab.run_one())
        one["warm"].append(lab.run_one(warm))
    rows = [{"what": "one job, warm, first", "seconds": [first]}]
    rows += [{"what": f"one job, {how}", "seconds": found} for how, found in one.items()]
    many: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(min(repeats, 3)):
        many["cold"].append(lab.run_trials(trials))
        many["warm"].append(lab.run_trials(trials, warm))
    return rows + [{"what": f"{trials} trials, {how}", "seconds": s} for how, s in many.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fake", type=float, help="import a module that computes for SECONDS")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--parallel", type=int, default=1, help="simulated GPUs, with --fake")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lab = Lab(options.fake, options.parallel)
    try:
        rows = measure(lab, options.repeats, options.trials)
    finally:
        lab.stoker("daemon", "stop")
    print("| from `stoker submit` to the end | median s | least | most |")
    print("| --- | ---: | ---: | ---: |")
    for row in rows:
        seconds = row["seconds"]
        print(f"| {row['what']} | {statistics.median(seconds):.2f} | {min(seconds):.2f}"
              f" | {max(seconds):.2f} |")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
