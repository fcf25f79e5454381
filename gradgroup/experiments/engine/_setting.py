"""What one training run is, and what is kept of it.

The idea. A run is told by its :class:`Setting` alone: two runs of one setting give the same
numbers. The setting is also the key under which a run is kept, so that nothing is ever trained
twice.

Conventions. The model is the paper's, softmax regression without bias, with weights of shape
(outputs, inputs) as in ``torch.nn.Linear``. A *step* of any optimizer sees 64 samples unless its
setting says otherwise, and an epoch has as many steps for all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

BATCH = 64
"""Samples a baseline's gradient sees, as in the paper."""
LOST = 1e4
"""A run has blown up when its loss is so many times that of a model that knows nothing."""

GROUPING = "GG (paper)"
"""The paper's algorithm to the letter, to be told from our own ``GradientGrouping``."""


class Setting(NamedTuple):
    """All that decides a run."""

    data: str
    """Name of the data set."""
    optimizer: str
    rate: float | None = None
    """Learning rate; None for an optimizer without one."""
    seed: int = 0
    """Decides the start and the batches, the same for all optimizers."""
    epochs: int = 10
    pixels: str = "unit"
    """``"unit"``: in [0, 1]; ``"standard"``: of mean 0 and standard deviation 1."""
    members: int = 1
    batch: int = BATCH
    """Samples that each gradient sees."""
    common: bool = False
    """Whether all members see the same samples."""
    spread: float | None = None
    """Of the members' random start, as a multiple of PyTorch's; None for the optimizer's own."""

    @property
    def gradients(self) -> int:
        """Sample gradients in a step."""
        return self.members * self.batch


class Run(NamedTuple):
    """What a run came to."""

    losses: tuple[float, ...]
    """Mean loss where gradients were taken, epoch by epoch; to the last one it went through."""
    final: float
    """On all training samples after the last step, at the point that is served."""
    lost: bool
    """Whether it blew up."""
    calls: int
    """Gradients it has taken: more than one a step for members, and for L-BFGS."""

    @property
    def training(self) -> float:
        """The paper's y axis: mean loss over all of training; infinite where it blew up."""
        return math.inf if self.lost else math.fsum(self.losses) / len(self.losses)
