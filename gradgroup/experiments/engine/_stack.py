"""Many runs trained as one stack.

The idea. All settings of a stack see the same samples in every step, or those of another seed, and
differ in their learning rate or in the members' spread. Their weights are one array; a step is one
product for the logits, one for the gradients and one loop for the update. Runs that blow up are
taken out, and do no harm before: nothing of one run is ever added to another's.

Conventions. As in ``_softmax.py``: weights are (groups, runs, outputs, inputs), where a group is a
member of a seed, and a run a rate or a spread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gradgroup.experiments.engine._batches import Pixels, rows_of, start
from gradgroup.experiments.engine._grouping import Grouping
from gradgroup.experiments.engine._lbfgs import LBFGS
from gradgroup.experiments.engine._rules import FirstOrder
from gradgroup.experiments.engine._setting import GROUPING, LOST, Run, Setting
from gradgroup.experiments.engine._softmax import Array, logits_of, losses_of, one_hot

if TYPE_CHECKING:
    from gradgroup.experiments.datasets import Images

# Steps made at a time, and between two looks at whether a run has blown up.
LOOK_EVERY = 10


class Mover(Protocol):
    """An optimizer for a stack."""

    def run(self, weights: Array, x: Array, labels: Array) -> tuple[Array, Array]:
        """Some steps in place: losses before each, and gradients taken; (steps, groups, runs)."""

    def keep(self, runs: Array) -> None:
        """Go on with these runs alone."""


class Grid(NamedTuple):
    """The settings of a stack: every seed with every variant."""

    like: Setting
    """What they have in common."""
    seeds: tuple[int, ...]
    variants: tuple[tuple[float | None, float | None], ...]
    """Learning rates and spreads."""

    @property
    def settings(self) -> list[Setting]:
        """All of them, seed by seed."""
        return [
            self.like._replace(seed=seed, rate=rate, spread=spread)
            for seed in self.seeds
            for rate, spread in self.variants
        ]


class Stack:
    """A stack at work.

    Parameters
    ----------
    images : Images
        The training set.
    grid : Grid
        The runs.
    dtype : NumPy dtype, default float32
        Precision of all numbers.
    """

    def __init__(self, images: Images, grid: Grid, dtype: Any = np.float32) -> None:
        self.images, self.grid, self.dtype = images, grid, dtype
        self.pixels = Pixels(images.x, images.top, grid.like.pixels, dtype)
        self.weights = self._start()
        self.mover = self._mover()
        self.lost = np.zeros((len(grid.seeds), len(grid.variants)), bool)
        self.calls = np.zeros(self.lost.shape, np.int64)
        self.limit = LOST * math.log(images.outputs)
        self.going = np.arange(len(grid.variants))
        self.epochs: list[Array] = []

    def _start(self) -> Array:
        """(seeds · members, runs, outputs, inputs)."""
        outputs, inputs = self.images.outputs, self.images.x.shape[1]
        drawn = [start(setting, outputs, inputs) for setting in self.grid.settings]
        by_seed = np.reshape(
            drawn, (len(self.grid.seeds), len(self.grid.variants), *drawn[0].shape)
        )
        by_member = by_seed.swapaxes(1, 2).reshape(-1, *by_seed.shape[1:2], outputs, inputs)
        return np.ascontiguousarray(by_member, self.dtype)

    def _mover(self) -> Mover:
        like = self.grid.like
        if like.optimizer == GROUPING:
            return Grouping(like.members, self.weights)
        rates = [rate for rate, _ in self.grid.variants if rate is not None]
        if like.optimizer == "L-BFGS":
            return LBFGS(rates, self.weights)
        return FirstOrder(like.optimizer, rates, self.weights)

    def train(self) -> list[Run]:
        """Train all runs, and say what they came to."""
        with np.errstate(all="ignore"):
            for epoch in range(self.grid.like.epochs):
                self._epoch(epoch)
            finals = self._finals()
        seeds, variants = self.lost.shape
        return [self._outcome(s, v, finals) for s in range(seeds) for v in range(variants)]

    def _epoch(self, epoch: int) -> None:
        rows = self._rows(epoch)
        losses = np.full((len(rows), *self.lost.shape), np.nan)
        for first in range(0, len(rows), LOOK_EVERY):
            if len(self.going):
                part = losses[first : first + LOOK_EVERY]
                part[:, :, self.going] = self._run(rows[first : first + LOOK_EVERY])
                self._look(part)
        self.epochs.append(np.where(self.lost, np.nan, losses.mean(axis=0)))

    def _rows(self, epoch: int) -> Array:
        """Samples of each group in each step: (steps, groups, batch)."""
        like, samples = self.grid.like, len(self.images.x)
        found = [rows_of(like._replace(seed=seed), samples, epoch) for seed in self.grid.seeds]
        return np.concatenate(found, axis=1)

    def _run(self, rows: Array) -> Array:
        """Losses (steps, seeds, runs), the members' mean, before each of some steps."""
        losses, calls = self.mover.run(self.weights, self.pixels.rows(rows), self.images.y[rows])
        shape = (len(rows), len(self.grid.seeds), self.grid.like.members, len(self.going))
        self.calls[:, self.going] += calls.reshape(shape).sum(axis=(0, 2))
        found: Array = losses.reshape(shape).mean(axis=2)
        return found

    def _look(self, losses: Array) -> None:
        """Note which runs have blown up; take out the variants of which none is left."""
        here = losses[:, :, self.going]
        self.lost[:, self.going] |= ~(here <= self.limit).all(axis=0)
        left = np.flatnonzero(~self.lost[:, self.going].all(axis=0))
        if len(left) < len(self.going):
            self.going = self.going[left]
            self.weights = np.ascontiguousarray(self.weights[:, left])
            self.mover.keep(left)

    def _finals(self) -> Array:
        """Loss of all samples at the members' mean; infinite for a run that was taken out."""
        finals = np.full(self.lost.shape, np.inf)
        if not len(self.going):
            return finals
        shape = (len(self.grid.seeds), self.grid.like.members, *self.weights.shape[1:])
        served = self.weights.reshape(shape).mean(axis=1)
        total = np.zeros(served.shape[:2])
        for part, x in self.pixels.blocks():
            logits = logits_of(served.reshape(1, -1, *served.shape[2:]), x[None])
            targets = one_hot(self.images.y[None, part], self.images.outputs, self.dtype)
            total += len(x) * losses_of(logits, targets).reshape(total.shape)
        finals[:, self.going] = total / len(self.images.x)
        return finals

    def _outcome(self, seed: int, variant: int, finals: Array) -> Run:
        losses = [float(epoch[seed, variant]) for epoch in self.epochs]
        whole = [loss for loss in losses if not math.isnan(loss)]
        lost = bool(self.lost[seed, variant])
        final = math.inf if lost else float(finals[seed, variant])
        return Run(tuple(whole), final, lost, int(self.calls[seed, variant]))
