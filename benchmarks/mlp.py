"""AutoGrouping on a small network, which is not convex: two layers on Fashion-MNIST, beside Adam.

Printed, as means and standard deviations over the seeds: the mean running loss, the training loss
and the test accuracy of the point that is served at the end. Both start from PyTorch's own
initialisation and see the same batches; Adam has its defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from benchmarks.problems import images
from gradgroup.torch import AutoGrouping

OPTIMIZERS: dict[str, Callable[..., Any]] = {"AutoGrouping": AutoGrouping, "Adam": Adam}


def network(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def train(name: str, seed: int, chosen: argparse.Namespace) -> tuple[float, float, float]:
    """Mean running loss, training loss and test accuracy."""
    x, y = images(chosen.data)
    torch.manual_seed(seed)
    model = network(chosen.hidden)
    opt = OPTIMIZERS[name](model.parameters())
    losses = []
    for _ in range(chosen.epochs):
        for rows in torch.split(torch.randperm(len(x)), chosen.batch):

            def closure(rows: Tensor = rows) -> Tensor:
                opt.zero_grad()
                loss = cross_entropy(model(x[rows]), y[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                return loss

            losses.append(opt.step(closure).item())
    with torch.no_grad():
        loss = float(cross_entropy(model(x), y))
        seen, labels = images(chosen.data, "test")
        accuracy = float((model(seen).argmax(1) == labels).float().mean())
    return fmean(losses), loss, accuracy


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and print a line for each optimizer."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks mlp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", choices=("fashion", "mnist"), default="fashion")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(f"{'':<14} {'running loss':>18} {'training loss':>18} {'test accuracy':>18}")
    for name in OPTIMIZERS:
        runs = [train(name, seed, chosen) for seed in range(chosen.seeds)]
        cells = [
            f"{fmean(column):>9.4f} ± {stdev(column) if len(runs) > 1 else 0.0:.4f}"
            for column in zip(*runs, strict=True)
        ]
        print(f"{name:<14} {' '.join(f'{cell:>18}' for cell in cells)}", flush=True)
    return 0
