"""Convex problems to train on: images, and synthetic data with a given condition number.

Every problem is a linear model without bias under a loss that is convex in its weights, which start
at zero. Images come in three scalings: pixels in [0, 1] ("01"), in [−1, 1] ("pm1"), and with every
pixel multiplied by a factor of its own, between 1e-2 and 1e2 ("het").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    mse_loss,
)

from gradgroup.experiments.datasets import load

SCALINGS = ("01", "pm1", "het")
IMAGES = ("mnist", "fashion", "digits")
CONDITIONS = ("1e2", "1e4", "1e6")
CASES = (
    *(f"{name} {scaling}" for name in IMAGES for scaling in SCALINGS),
    *(f"{kind} {kappa}" for kind in ("logistic", "squares") for kappa in CONDITIONS),
)
# Small or odd: on these a tuning-free optimizer has least time, or most to cope with.
OTHERS = (
    "cancer raw",
    "cancer standard",
    "wine raw",
    "diabetes raw",
    "blobs raw",
    "words raw",
    "rare raw",
    "heavy raw",
    "offset raw",
    "noiseless raw",
)
DATA_SETS = {"mnist": "mnist", "fashion": "fashion-mnist", "digits": "digits"}

Kind = Literal["classes", "logistic", "squares"]
Part = Literal["train", "test"]


class Problem(NamedTuple):
    """A data set and a loss."""

    name: str
    kind: Kind
    x: Tensor
    y: Tensor
    outputs: int
    penalty: float = 0.0
    """λ of ``λ/2 ‖W‖²``."""
    scale: float = 1.0
    """What the loss is multiplied with."""

    def loss(self, weight: Tensor, rows: Tensor | slice) -> Tensor:
        """The mean loss of some samples."""
        outputs, y = self.x[rows] @ weight.T, self.y[rows]
        found = LOSSES[self.kind](outputs, y)
        if self.penalty:
            found = found + 0.5 * self.penalty * weight.square().sum()
        return self.scale * found

    @torch.no_grad()
    def full(self, weight: Tensor) -> float:
        """The loss of all samples, in its own scale."""
        parts = [slice(low, low + 5000) for low in range(0, len(self.x), 5000)]
        losses = [float(self.loss(weight, part)) * len(self.y[part]) for part in parts]
        return math.fsum(losses) / len(self.x) / self.scale

    def batches(self, seed: int, size: int) -> Iterator[Tensor]:
        """Rows of samples, epoch after epoch; the few that fill no batch are left out."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self.x), generator=generator)
            yield from order[: len(order) - len(order) % size].view(-1, size)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "classes": cross_entropy,
    "logistic": lambda outputs, y: binary_cross_entropy_with_logits(outputs[:, 0], y),
    "squares": lambda outputs, y: 0.5 * mse_loss(outputs[:, 0], y),
}


@lru_cache(maxsize=4)
def problem(case: str) -> Problem:
    """One of :data:`CASES` or of :data:`OTHERS`."""
    name, variant = case.split()
    if case in OTHERS:
        return other(case, name, variant)
    if name in ("logistic", "squares"):
        return synthetic(name, float(variant))
    x, y = images(name)
    return Problem(case, "classes", scaled(x, variant), y, outputs=10)


def scaled(x: Tensor, scaling: str) -> Tensor:
    if scaling == "pm1":
        return (x - 0.5) / 0.5
    if scaling == "het":
        generator = torch.Generator().manual_seed(7)
        order = torch.randperm(x.shape[1], generator=generator)
        return x * torch.logspace(-2, 2, x.shape[1])[order]
    return x


def synthetic(kind: str, kappa: float, samples: int = 10_000, d: int = 100) -> Problem:
    """Features in a rotated basis, with covariances log-spaced from 1 to 1/κ.

    Every direction is worth as much as any other, so that none can be left out.
    """
    generator = torch.Generator().manual_seed(123)
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator)).Q
    z = torch.randn(samples, d, generator=generator)
    x = (z * torch.logspace(0, -0.5 * math.log10(kappa), d)) @ rotation
    signal = z @ torch.randn(d, generator=generator) / math.sqrt(d)
    name = f"{kind} {kappa:.0e}".replace("e+0", "e")
    if kind == "squares":
        noise = math.sqrt(0.1) * torch.randn(samples, generator=generator)
        return Problem(name, "squares", x, signal + noise, outputs=1)
    y = torch.rand(samples, generator=generator) < torch.sigmoid(4.0 * signal)
    return Problem(name, "logistic", x, y.float(), outputs=1, penalty=1e-4)


def other(case: str, name: str, variant: str) -> Problem:
    if name in ("cancer", "wine", "diabetes"):
        import sklearn.datasets

        load = {"cancer": "load_breast_cancer"}.get(name, f"load_{name}")
        data = getattr(sklearn.datasets, load)()
        x, y = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
        if variant == "standard":
            x = (x - x.mean(0)) / x.std(0)
    else:
        x, y = MADE[name](torch.Generator().manual_seed(11))
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    outputs = 1 if y.is_floating_point() else int(y.max()) + 1
    if y.is_floating_point():
        return Problem(case, "squares", x, y.float(), outputs)
    if outputs == 2:
        return Problem(case, "logistic", x, y.float(), 1)
    return Problem(case, "classes", x, y, outputs)


def blobs(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Five classes about five centres: solved within a few steps, then all noise."""
    centres = torch.randn(5, 40, generator=g)
    y = torch.randint(5, (6000,), generator=g)
    return centres[y] + 2.0 * torch.randn(6000, 40, generator=g), y


def words(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Logarithms of word counts on twenty topics, a tenth of the labels wrong."""
    base = 1.0 / (torch.arange(2000) + 10.0)
    topics = base * torch.rand(20, 2000, generator=g) ** 4
    y = torch.randint(20, (6000,), generator=g)
    drawn = torch.multinomial(topics[y], 60, replacement=True, generator=g)
    counts = torch.zeros(6000, 2000).scatter_add_(1, drawn, torch.ones(6000, 60))
    wrong = torch.rand(6000, generator=g) < 0.1
    return counts.log1p(), torch.where(wrong, torch.randint(20, (6000,), generator=g), y)


def rare(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """A thousand features that are 0 or 1, most of them hardly ever 1."""
    often = (torch.arange(1000) + 2.0) ** -1.2
    x = (torch.rand(20_000, 1000, generator=g) < often).float()
    signal = x @ (1.5 * torch.randn(1000, generator=g))
    chance = torch.sigmoid(signal - signal.mean())
    return x, (torch.rand(20_000, generator=g) < chance).long()


def heavy(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features with heavy tails."""
    x = torch.randn(10_000, 50, generator=g)
    x = x / torch.rand(10_000, 50, generator=g).clamp_min(1e-3) ** 0.4
    chance = torch.sigmoid(x @ (0.3 * torch.randn(50, generator=g)))
    return x, (torch.rand(10_000, generator=g) < chance).long()


def offset(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Least squares where the constant is a hundred times all else."""
    x = torch.randn(5000, 50, generator=g)
    noise = 0.3 * torch.randn(5000, generator=g)
    return x, x @ torch.randn(50, generator=g) / 7.0 + noise + 100.0


def noiseless(g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Least squares that can be solved exactly, but for a little noise."""
    x = torch.randn(5000, 50, generator=g) * torch.logspace(0, -1, 50)
    return x, x @ torch.randn(50, generator=g) + 0.01 * torch.randn(5000, generator=g)


MADE = {
    "blobs": blobs,
    "words": words,
    "rare": rare,
    "heavy": heavy,
    "offset": offset,
    "noiseless": noiseless,
}


def images(name: str, part: Part = "train") -> tuple[Tensor, Tensor]:
    """Pixels in [0, 1], a picture a row, and what they show.

    Nothing is downloaded: a benchmark that lacks data leaves them out, and says so.
    """
    found = load(DATA_SETS[name], part, download=False)
    return torch.from_numpy(found.x).float() / found.top, torch.from_numpy(found.y)
