"""`make demo`: a small sweep of real commands over four simulated GPUs, in the foreground.

Searches for the minimum of a function from twelve starting points, each in its own process. The
folder with the results is kept, so that the commands printed at the end work.
"""

from __future__ import annotations

import os
import sys
import tempfile

from stoker.cli.main import main
from stoker.text.commands.shell_words import quote

_TRIAL = """
import math, os, sys, time
x = float(sys.argv[1])
bumpy = lambda x: (x - 2) ** 2 / 4 + math.sin(5 * x)
for step in range(50):
    x -= 0.02 * (bumpy(x + 1e-4) - bumpy(x - 1e-4)) / 2e-4
    time.sleep(0.01)
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
    print(f"stoker: y={bumpy(x):.4f} x={x:.3f} gpu={gpu} step={step}")
"""
_SWEEP = """
command = "{python} {trial} {{start}}"
metric = "y:min"
[params]
start = "range(-1, 5, 0.5)"
"""


def run() -> int:
    os.environ["STOKER_DEVICES"] = "4"  # simulated GPUs, even if this host has real ones
    folder = tempfile.mkdtemp(prefix="stoker-demo-")
    sweep, trial = os.path.join(folder, "sweep.toml"), os.path.join(folder, "trial.py")
    logs = os.path.join(folder, "logs")
    with open(trial, "w", encoding="utf-8") as file:
        file.write(_TRIAL)
    with open(sweep, "w", encoding="utf-8") as file:
        file.write(_SWEEP.format(python=quote(sys.executable), trial=quote(trial)))
    python = _short_path(sys.executable)
    stoker = _short_path(os.path.join(os.path.dirname(sys.executable), "stoker"))
    print("# twelve trials on four simulated GPUs")
    _show(f"STOKER_DEVICES=4 {stoker} run --devices 0,1,2,3 --log-dir {logs} {sweep}")
    failed = main(["run", "--devices", "0,1,2,3", "--log-dir", logs, sweep])
    print()
    _show(f"{stoker} plot {logs}")
    main(["plot", logs, "--width", "78", "--height", "18"])
    print("# next: more of the results, and a job in the background")
    _show(f"{stoker} results {logs} --best 3")
    _show(f"{stoker} submit {python} {trial} 1.5")
    _show(f"{stoker} log -f @")
    return failed


def _show(command: str) -> None:
    print(f"$ {command}", flush=True)  # before the command writes to stderr


def _short_path(path: str) -> str:
    """The path relative to the current folder, quoted for a shell."""
    inside = os.path.relpath(path)
    return quote(path if inside.startswith("..") else inside)


if __name__ == "__main__":
    raise SystemExit(run())
