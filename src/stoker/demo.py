"""`make demo`: a small sweep of real commands over four simulated GPUs, in the foreground.

Looks for the minimum of a bumpy function from twelve starting points, each a process of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile

from stoker.cli.main import main
from stoker.cli.run import results_table
from stoker.core.commands import quote
from stoker.store.database import open_database

_TRIAL = """
import math, os, sys, time
x = float(sys.argv[1])
bumpy = lambda x: (x - 2) ** 2 / 4 + math.sin(5 * x)
for step in range(50):
    x -= 0.02 * (bumpy(x + 1e-4) - bumpy(x - 1e-4)) / 2e-4
    time.sleep(0.01)
print(f"start={sys.argv[1]} x={x:+.3f} y={bumpy(x):+.4f} gpu={os.environ['CUDA_VISIBLE_DEVICES']}")
"""


def run() -> int:
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as folder:
        trial, jobs = os.path.join(folder, "trial.py"), os.path.join(folder, "jobs.txt")
        with open(trial, "w", encoding="utf-8") as file:
            file.write(_TRIAL)
        with open(jobs, "w", encoding="utf-8") as file:
            for step in range(12):
                file.write(f"{quote(sys.executable)} trial.py {step / 2 - 1}\n")
        logs = os.path.join(folder, "logs")
        print("$ stoker run --devices 0,1,2,3 jobs.txt      # twelve trials, four simulated GPUs")
        failed = main(["run", "--devices", "0,1,2,3", "--cwd", folder, "--log-dir", logs, jobs])
        _show(logs)
    print("\nnext: stoker submit python train.py      (queued in the background, survives logout)")
    return failed


def _show(logs: str) -> None:
    db = open_database(logs)
    print(results_table(db))
    db.close()
    results = []
    for name in os.listdir(logs):
        if name.endswith(".log"):
            with open(os.path.join(logs, name), encoding="utf-8") as file:
                results.append(file.read().strip())
    best = min(results, key=lambda line: float(line.split("y=")[1].split()[0]))
    print(f"\nbest trial: {best}")


if __name__ == "__main__":
    raise SystemExit(run())
