"""One run at a time, by PyTorch: as anybody would write it.

The idea. A model, a loss, ``backward`` and an optimizer's ``step``. It is how our own optimizers
are trained, through the same door as everybody's; it is what every run of a stack must equal; and
it is what a stack's speed is measured by.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import LBFGS, SGD, Adam, Optimizer, RMSprop

from gradgroup.core._solve import ALPHA, EPS
from gradgroup.experiments.engine._batches import Pixels, rows_of, start
from gradgroup.experiments.engine._rules import MOMENTUM
from gradgroup.experiments.engine._setting import GROUPING, LOST, Run, Setting
from gradgroup.experiments.engine._softmax import Array
from gradgroup.torch import AutoGrouping, GradientGrouping

if TYPE_CHECKING:
    from gradgroup.experiments.datasets import Images

BASELINES: dict[str, Callable[..., Optimizer]] = {
    "SGD": SGD,
    "Nesterov": partial(SGD, momentum=MOMENTUM, nesterov=True),
    "RMSprop": RMSprop,
    "Adam": Adam,
    "L-BFGS": LBFGS,
}


def build(setting: Setting, model: nn.Module) -> Optimizer:
    """The optimizer of a setting."""
    if setting.optimizer == "AutoGrouping":
        return AutoGrouping(model.parameters(), setting.members)
    if setting.optimizer == "GradientGrouping":
        return GradientGrouping(model.parameters(), setting.members)
    if setting.optimizer == GROUPING:
        return letter(setting, model)
    return BASELINES[setting.optimizer](model.parameters(), lr=setting.rate)


def letter(setting: Setting, model: nn.Module) -> GradientGrouping:
    """The paper's algorithm; members start about the model's weights, as far apart as a stack's."""
    (weights,) = model.parameters()
    drawn = (setting.spread or 1.0) / math.sqrt(3.0 * weights.shape[1])
    # Numbers drawn each by itself are less far from their mean than from what they are drawn about.
    spread = drawn * math.sqrt((setting.members - 1) / setting.members)
    return GradientGrouping(
        [weights], setting.members, alpha=ALPHA, eps=EPS, spread=spread, safeguard=False
    )


class Plain:
    """A run at work.

    Parameters
    ----------
    images : Images
        The training set.
    setting : Setting
        The run.
    dtype : NumPy dtype, default float32
        Precision of all numbers.
    """

    def __init__(self, images: Images, setting: Setting, dtype: Any = np.float32) -> None:
        self.images, self.setting = images, setting
        self.pixels = Pixels(images.x, images.top, setting.pixels, dtype)
        self.labels = torch.from_numpy(images.y)
        first = start(setting, images.outputs, images.x.shape[1])[0].astype(dtype)
        outputs, inputs = first.shape
        self.model = nn.Linear(inputs, outputs, bias=False)
        self.model.weight = nn.Parameter(torch.from_numpy(first))
        torch.manual_seed(setting.seed)
        self.optimizer = build(setting, self.model)
        self.calls, self.limit = 0, LOST * math.log(images.outputs)

    def train(self) -> Run:
        """Train, and say what it came to."""
        means: list[float] = []
        for epoch in range(self.setting.epochs):
            losses = self.epoch(epoch)
            if not all(loss <= self.limit for loss in losses):
                return Run(tuple(means), math.inf, True, self.calls)
            means.append(math.fsum(losses) / len(losses))
        return Run(tuple(means), self.final(), False, self.calls)

    def epoch(self, number: int) -> list[float]:
        """Losses before every step; the last is too large where the run has blown up."""
        losses: list[float] = []
        for rows in rows_of(self.setting, len(self.images.x), number):
            losses.append(self.step(rows))
            if not losses[-1] <= self.limit:
                break
        return losses

    def step(self, rows: Array) -> float:
        """One step; the mean of the members' losses before it."""
        x, y = torch.from_numpy(self.pixels.rows(rows)), self.labels[torch.from_numpy(rows)]
        # L-BFGS takes many gradients of the one batch it has.
        batches = cycle(zip(x, y, strict=True))

        def closure() -> Tensor:
            samples, labels = next(batches)
            self.calls += 1
            self.optimizer.zero_grad()
            loss = cross_entropy(self.model(samples), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a refused step, where a run blows up
            # PyTorch declares closures as if they returned numbers, but hands on what they return.
            loss: Any = self.optimizer.step(closure)  # type: ignore[arg-type]
        return float(loss.detach())

    @torch.no_grad()
    def final(self) -> float:
        """Loss of all samples at the point that is served."""
        losses = (
            cross_entropy(self.model(torch.from_numpy(x)), self.labels[part], reduction="sum")
            for part, x in self.pixels.blocks()
        )
        return sum(float(loss) for loss in losses) / len(self.labels)
