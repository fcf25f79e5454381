"""Small convex problems with known answers, shared by the tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradgroup.torch import AutoGrouping, GradientGrouping

every_kind = pytest.mark.parametrize("kind", [GradientGrouping, AutoGrouping])


class Quadratic:
    """``height · ½ (x/length)ᵀ A (x/length)`` with the given eigenvalues, in a parameter ``x``."""

    def __init__(
        self, eigenvalues: Tensor, *, length: float = 1.0, height: float = 1.0, seed: int = 0
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.eigenvalues, self.length, self.height = eigenvalues, length, height
        start = torch.randn(len(eigenvalues), generator=generator, dtype=eigenvalues.dtype)
        self.x = nn.Parameter(length * start)
        self.start = self.now()

    def loss(self) -> Tensor:
        return self.height * 0.5 * (self.eigenvalues * (self.x / self.length) ** 2).sum()

    def closure(self) -> Tensor:
        self.x.grad = None
        loss = self.loss()
        loss.backward()
        return loss

    @torch.no_grad()
    def now(self) -> float:
        return self.loss().item()


def log_spaced(d: int, kappa: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.logspace(-math.log10(kappa), 0, d, dtype=dtype)


def one_outlier(d: int, kappa: float, dtype: torch.dtype = torch.float64) -> Tensor:
    eigenvalues = torch.full((d,), 1.0 / kappa, dtype=dtype)
    eigenvalues[-1] = 1.0
    return eigenvalues


def two_clusters(d: int, kappa: float, dtype: torch.dtype = torch.float64) -> Tensor:
    eigenvalues = torch.ones(d, dtype=dtype)
    eigenvalues[: d // 2] = 1.0 / kappa
    return eigenvalues


def evenly_spaced(d: int, kappa: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(1.0 / kappa, 1.0, d, dtype=dtype)


SPECTRA = (log_spaced, one_outlier, two_clusters, evenly_spaced)


class Classes:
    """A separable-with-noise classification problem, a model for it, and its closures."""

    def __init__(self, model: nn.Module | None = None, *, samples: int = 64, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        centres = torch.randn(3, 5, generator=generator)
        self.y = torch.randint(3, (samples,), generator=generator)
        self.x = centres[self.y] + torch.randn(samples, 5, generator=generator)
        torch.manual_seed(seed)
        self.model = nn.Linear(5, 3) if model is None else model

    def loss(self, x: Tensor | None = None, y: Tensor | None = None) -> Tensor:
        x, y = (self.x, self.y) if x is None else (x, y)
        return cross_entropy(self.model(x), y)

    def closure(self, opt: torch.optim.Optimizer) -> Callable[[], Tensor]:
        """All members see all samples."""

        def run() -> Tensor:
            opt.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        return run

    def shares(self, opt: torch.optim.Optimizer, members: int) -> Callable[[], Tensor]:
        """Each member sees its own share of the samples."""
        parts = zip(self.x.chunk(members), self.y.chunk(members), strict=True)

        def run() -> Tensor:
            opt.zero_grad()
            loss = self.loss(*next(parts))
            loss.backward()
            return loss

        return run

    @torch.no_grad()
    def now(self) -> float:
        return self.loss().item()

    def optimizer(self, kind: Any = GradientGrouping, **settings: Any) -> Any:
        torch.manual_seed(1)
        return kind(self.model.parameters(), **settings)


def values(module: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
