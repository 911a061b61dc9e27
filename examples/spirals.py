"""A small training example: a network learns to classify the points of two spirals.

stoker sweep examples/spirals.toml          # needs PyTorch and stoker[search]
"""

import argparse
import math

import torch

import stoker


def spirals(points: int, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    angle = torch.sqrt(torch.rand(points, generator=random)) * 3 * math.pi
    side = (torch.rand(points, generator=random) < 0.5).float()
    radius = angle / (3 * math.pi)
    turn = angle + side * math.pi
    place = torch.stack((radius * torch.cos(turn), radius * torch.sin(turn)), 1)
    return place + noise * torch.randn(points, 2, generator=random), side


def train(lr: float, width: int, depth: int, seed: int, epochs: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    size = 2
    for _ in range(depth):
        layers += [torch.nn.Linear(size, width), torch.nn.GELU()]
        size = width
    model = torch.nn.Sequential(*layers, torch.nn.Linear(size, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits
    x, y = (part.to(device) for part in spirals(4000, 0.02, seed))
    test_x, test_y = (part.to(device) for part in spirals(2000, 0.02, seed + 1))
    for epoch in range(epochs):
        for start in range(0, len(x), 500):
            optimizer.zero_grad()
            loss = loss_of(model(x[start : start + 500]).squeeze(1), y[start : start + 500])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            out = model(test_x).squeeze(1)
            accuracy = ((out > 0) == (test_y > 0.5)).float().mean()
            stoker.log(val_loss=loss_of(out, test_y), accuracy=accuracy, step=epoch)
        if stoker.should_stop():
            print(f"stopped early after epoch {epoch}")
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=60)
    train(**vars(parser.parse_args()))
