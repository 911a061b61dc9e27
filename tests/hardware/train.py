"""The program that the hardware tests submit: trains a model, or holds GPU memory and waits.

python train.py [--gib N] [--model NAME] [--steps N] [--until FILE] [--report FILE]

Models: a small `mlp`, a `resnet` and a `transformer` of medium size, and `saturating` matrix
products that use the whole GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=0.0)
    parser.add_argument("--model", default="mlp", choices=sorted(_MODELS))
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
    report |= _train(torch, device, options.model, options.steps)
    while options.until and not os.path.exists(options.until):
        time.sleep(0.02)
    if options.report:
        _write(options.report, report | {"ended": time.time()})


def _mlp(torch):  # type: ignore[no-untyped-def]
    layers = torch.nn
    model = layers.Sequential(
        layers.Linear(784, 1024), layers.ReLU(), layers.Linear(1024, 1024), layers.ReLU(),
        layers.Linear(1024, 10),
    )  # fmt: skip
    return model, torch.randn(256, 784)


def _resnet(torch):  # type: ignore[no-untyped-def]
    layers = torch.nn

    class Block(layers.Module):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.inner = layers.Sequential(
                layers.Conv2d(channels, channels, 3, padding=1), layers.BatchNorm2d(channels),
                layers.ReLU(), layers.Conv2d(channels, channels, 3, padding=1),
                layers.BatchNorm2d(channels),
            )  # fmt: skip

        def forward(self, x):  # type: ignore[no-untyped-def]
            return layers.functional.relu(x + self.inner(x))

    model = layers.Sequential(
        layers.Conv2d(3, 64, 3, padding=1), *(Block(64) for _ in range(6)),
        layers.AdaptiveAvgPool2d(1), layers.Flatten(), layers.Linear(64, 10),
    )  # fmt: skip
    return model, torch.randn(128, 3, 32, 32)


def _transformer(torch):  # type: ignore[no-untyped-def]
    layers = torch.nn
    layer = layers.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = layers.Sequential(
        layers.TransformerEncoder(layer, 4), layers.Flatten(), layers.Linear(64 * 256, 10)
    )
    return model, torch.randn(64, 64, 256)


def _saturating(torch):  # type: ignore[no-untyped-def]
    layers = torch.nn
    wide = [layers.Linear(8192, 8192) for _ in range(4)]
    return layers.Sequential(*wide, layers.Linear(8192, 10)), torch.randn(8192, 8192)


_MODELS = {"mlp": _mlp, "resnet": _resnet, "saturating": _saturating, "transformer": _transformer}


def _train(torch, device, name: str, steps: int) -> dict[str, float]:  # type: ignore[no-untyped-def]
    if not steps:
        return {}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = torch.nn
    model, inputs = _MODELS[name](torch)  # type: ignore[no-untyped-call]
    model, inputs = model.to(device), inputs.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    labels = torch.randint(10, (len(inputs),), device=device)
    first = begun = 0.0
    path = os.environ.get("STOKER_METRICS")
    metrics = open(path, "a", encoding="ascii") if path else None  # noqa: SIM115
    for step in range(steps):
        if step == 20:  # kernels are loaded, the allocator is warm
            torch.cuda.synchronize()
            first = time.time()
        optimizer.zero_grad()
        loss = layers.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        begun = begun or time.time()
        if step % 50 == 0:
            row = {"step": step, "loss": float(loss.detach())}
            if metrics is not None:
                metrics.write(json.dumps(row) + "\n")
                metrics.flush()
    torch.cuda.synchronize()
    last = time.time()
    return {"first": first, "last": last, "steps": steps - 20, "loss": float(loss.detach())}


def _write(path: str, report: dict[str, float]) -> None:
    with open(f"{path}.new", "w", encoding="ascii") as file:
        json.dump(report, file)
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    main()
