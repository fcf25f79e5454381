"""The paper's algorithm for a stack of groups, to the letter.

The idea. What ``gradgroup.core`` solves for one group it solves for a stack of them: the two Gram
matrices of every group in one call, then Lemma 1 with the paper's α and ε for all, then one pass
that moves all members. Nothing guards the steps: this is what the paper describes, and what its
figures are drawn from.

Conventions. As in ``_softmax.py``, with the members of a seed as its groups: weights are (seeds ·
members, runs, outputs, inputs), because each member sees samples of its own.
"""

from __future__ import annotations

import numpy as np

from gradgroup.core import Grams, System, free_steps, normal_equations
from gradgroup.core._solve import BLOCK
from gradgroup.experiments.engine._by_gradient import ByGradient
from gradgroup.experiments.engine._softmax import Array


class Grouping(ByGradient):
    """Gradient Grouping at work on a stack.

    Parameters
    ----------
    members : int
        N.
    weights : array of shape (groups, runs, outputs, inputs)
        Where the members start.
    """

    def __init__(self, members: int, weights: Array) -> None:
        super().__init__(weights)
        self._members = members

    def move(self, weights: Array, grads: Array) -> None:
        """One step of all members."""
        thetas, directions = self._grouped(weights), self._grouped(grads)
        found = Grams(_products(directions, directions), _products(directions, thetas))
        steps = _steps(normal_equations(found)).astype(weights.dtype)
        directions *= steps[..., None]
        thetas += directions

    def _grouped(self, stack: Array) -> Array:
        """The same memory as (seeds, runs, members, numbers)."""
        apart = stack.reshape(-1, self._members, stack.shape[1], stack[0, 0].size)
        return apart.transpose(0, 2, 1, 3)


def _steps(system: System) -> Array:
    """Lemma 1; NaN for a group that has overflowed, which must not stop those beside it."""
    sound = np.isfinite(system.a.sum((-1, -2)) + system.b.sum(-1))[..., None]
    ones = np.eye(system.b.shape[-1])
    steps = free_steps(System(np.where(sound[..., None], system.a, ones), system.b))
    return np.where(sound, steps, np.nan)


def _products(rows: Array, columns: Array) -> Array:
    """``rows @ columnsᵀ`` of every group; sums over blocks of columns are float64."""
    cuts = [slice(low, low + BLOCK) for low in range(0, rows.shape[-1], BLOCK)]
    total = np.zeros((*rows.shape[:-1], columns.shape[-2]))
    for cut in cuts:
        total += rows[..., cut] @ columns[..., cut].swapaxes(-1, -2)
    return total
