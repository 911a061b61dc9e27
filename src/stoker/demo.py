"""`make demo`: a small sweep of real commands over four simulated GPUs, in the foreground.

Looks for the minimum of a bumpy function from twelve starting points, each a process of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile

from stoker.cli.main import main
from stoker.core.commands import quote

_TRIAL = """
import math, os, sys, time
x = float(sys.argv[1])
bumpy = lambda x: (x - 2) ** 2 / 4 + math.sin(5 * x)
for step in range(50):
    x -= 0.02 * (bumpy(x + 1e-4) - bumpy(x - 1e-4)) / 2e-4
    time.sleep(0.01)
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    print(f"stoker: y={bumpy(x):.4f} x={x:.3f} gpu={gpu} step={step}")
"""
_SWEEP = """
command = "{python} trial.py {{start}}"
metric = "y"
[params]
start = "range(-1, 5, 0.5)"
"""


def run() -> int:
    os.environ["STOKER_DEVICES"] = "4"  # whatever this host has
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as folder:
        sweep, logs = os.path.join(folder, "sweep.toml"), os.path.join(folder, "logs")
        with open(os.path.join(folder, "trial.py"), "w", encoding="utf-8") as file:
            file.write(_TRIAL)
        with open(sweep, "w", encoding="utf-8") as file:
            file.write(_SWEEP.format(python=quote(sys.executable)))
        print("$ stoker run --devices 0,1,2,3 sweep.toml      # twelve trials, four simulated GPUs")
        failed = main(["run", "--devices", "0,1,2,3", "--cwd", folder, "--log-dir", logs, sweep])
        print("\n$ stoker plot sweep")
        main(["plot", logs, "--width", "78", "--height", "18"])
    print("\nnext: stoker submit python train.py      (queued in the background, survives logout)")
    return failed


if __name__ == "__main__":
    raise SystemExit(run())
