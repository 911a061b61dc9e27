"""A stand-in for a training script that reports a loss at each step."""

import argparse
import math

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--seed", type=int, default=0)
given = parser.parse_args()
for step in range(10):
    loss = abs(math.log10(given.lr) + 2) + 1 / (step + 1) + given.seed / 1000
    print(f"stoker: val_loss={loss:.4f} step={step}")
