"""The program that the hardware tests submit: trains a model, or holds GPU memory and waits.

python train.py [--gib N] [--steps N] [--until FILE] [--report FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--until")
    parser.add_argument("--report")
    options = parser.parse_args()
    import torch  # type: ignore[import-not-found, unused-ignore]

    device = torch.device("cuda")
    free, total = torch.cuda.mem_get_info()
    report = {"free": free, "total": total, "pid": os.getpid(), "began": time.time()}
    block = torch.empty(int(options.gib * 2**30), dtype=torch.uint8, device=device)
    block.fill_(1)
    torch.cuda.synchronize()
    if options.report:
        _write(f"{options.report}.up", report)
    report |= _train(torch, device, options.steps)
    while options.until and not os.path.exists(options.until):
        time.sleep(0.02)
    if options.report:
        _write(options.report, report | {"ended": time.time()})


def _train(torch, device, steps: int) -> dict[str, float]:  # type: ignore[no-untyped-def]
    if not steps:
        return {}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = torch.nn
    model = layers.Sequential(
        layers.Linear(784, 1024), layers.ReLU(), layers.Linear(1024, 1024), layers.ReLU(),
        layers.Linear(1024, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(256, 784, device=device)
    labels = torch.randint(10, (256,), device=device)
    first = begun = 0.0
    for step in range(steps):
        if step == 20:  # kernels are loaded, the allocator is warm
            torch.cuda.synchronize()
            first = time.time()
        optimizer.zero_grad()
        loss = layers.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        begun = begun or time.time()
    torch.cuda.synchronize()
    last = time.time()
    return {"first": first, "last": last, "steps": steps - 20, "loss": float(loss.detach())}


def _write(path: str, report: dict[str, float]) -> None:
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump(report, file)
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    main()
