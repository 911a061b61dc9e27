"""A simulated training run for `npm run dev`: progress bars, colors, metrics, maybe an error."""

import argparse
import math
import random
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--fail", action="store_true", help="end with an exception")
given = parser.parse_args()
random.seed(given.seed)
print("\x1b[1mstarting\x1b[0m on a simulated GPU", flush=True)
for step in range(given.steps):
    for percent in range(0, 101, 25):
        print(f"\rstep {step}: {percent:3}%|{'█' * (percent // 10):10}|", end="", flush=True)
        time.sleep(0.05)
    floor = abs(math.log10(given.lr) + 2) / 4
    loss = floor + 2 / (1 + step / 8) + random.random() / 20
    print(f"\n\x1b[2m[{time.strftime('%H:%M:%S')}]\x1b[0m \x1b[36mloss\x1b[0m {loss:.4f}")
    print(f"stoker: val_loss={loss:.4f} step={step}", flush=True)
if given.fail:
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
