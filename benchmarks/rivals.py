"""The optimizers that are compared, each behind the same face.

SGD, Nesterov, RMSprop and Adam are tried at a grid of learning rates, of which the best is chosen
case by case: an oracle that no user has. The others run once, with their packages' own defaults.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import SGD, Adam, RMSprop

from gradgroup.torch import AutoGrouping, GradientGrouping

Closure = Callable[[], Tensor]


class Trainer:
    """An optimizer at work on a model."""

    def __init__(self, opt: Any, model: nn.Linear) -> None:
        self.opt, self.model = opt, model

    def step(self, closure: Closure) -> None:
        self.opt.step(closure)

    def served(self) -> Tensor:
        """The weights to serve, once training is over."""
        return self.model.weight.detach()


class Moded(Trainer):
    """An optimizer with a mode for training and one for the rest."""

    def __init__(self, opt: Any, model: nn.Linear) -> None:
        super().__init__(opt, model)
        opt.train()

    def served(self) -> Tensor:
        self.opt.eval()
        return super().served()


class Averaged(Trainer):
    """DoG and its averager."""

    def __init__(self, opt: Any, model: nn.Linear) -> None:
        super().__init__(opt, model)
        self.averager = importlib.import_module("dog").PolynomialDecayAverager(model)

    def step(self, closure: Closure) -> None:
        super().step(closure)
        self.averager.step()

    def served(self) -> Tensor:
        weights: Tensor = self.averager.averaged_model.weight.detach()
        return weights


class Method(NamedTuple):
    """An optimizer and how it is tried."""

    name: str
    build: Callable[..., Any]
    """From parameters, and ``lr`` where there is a grid."""
    centre: float | None = None
    """The middle of the grid of learning rates; None where there is none."""
    shares: int = 1
    """Into how many gradients of its own a step divides the batch."""
    again: bool = False
    """Whether a step may take further gradients of the same samples."""
    trainer: Callable[[Any, nn.Linear], Trainer] = Trainer

    def train(self, model: nn.Linear, rate: float | None) -> Trainer:
        settings = {} if rate is None else {"lr": rate}
        return self.trainer(self.build(model.parameters(), **settings), model)


def of_package(package: str, name: str, **settings: Any) -> Callable[..., Any]:
    """An optimizer of another package, which is imported when it is built."""

    def build(params: Any) -> Any:
        return getattr(importlib.import_module(package), name)(params, **settings)

    return build


def nesterov(params: Any, lr: float) -> SGD:
    return SGD(params, lr=lr, momentum=0.9, nesterov=True)


AUTO = Method("AutoGrouping", AutoGrouping)
RIVALS = (
    Method("SGD, best rate", SGD, centre=0.1),
    Method("Nesterov, best rate", nesterov, centre=0.1),
    Method("RMSprop, best rate", RMSprop, centre=0.01),
    Method("Adam, best rate", Adam, centre=0.01),
    Method("Adam", Adam),
    Method("Schedule-Free AdamW", of_package("schedulefree", "AdamWScheduleFree"), trainer=Moded),
    Method("Schedule-Free SGD", of_package("schedulefree", "SGDScheduleFree"), trainer=Moded),
    Method("Prodigy", of_package("prodigyopt", "Prodigy")),
    Method("D-Adapt Adam", of_package("dadaptation", "DAdaptAdam")),
    Method("DoG, averaged", of_package("dog", "DoG"), trainer=Averaged),
    Method("GradientGrouping", GradientGrouping, shares=2),
)
PACKAGES = ("schedulefree", "prodigyopt", "dadaptation", "dog")


def missing(packages: Sequence[str] = PACKAGES) -> list[str]:
    """The rivals' packages that are not installed."""
    from importlib.util import find_spec

    return [name for name in packages if find_spec(name) is None]
