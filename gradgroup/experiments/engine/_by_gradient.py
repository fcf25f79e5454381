"""What optimizers have in common that take one gradient a step."""

from __future__ import annotations

import numpy as np

from gradgroup.experiments.engine._softmax import Array, evaluate


class ByGradient:
    """An optimizer at work on a stack: a gradient, a move, and again.

    Parameters
    ----------
    weights : array of shape (groups, runs, outputs, inputs)
        Where the runs start.
    """

    def __init__(self, weights: Array) -> None:
        self._grads = np.empty_like(weights)

    def run(self, weights: Array, x: Array, labels: Array) -> tuple[Array, Array]:
        """Some steps in place: losses before each, and gradients taken; (steps, groups, runs)."""
        losses = np.empty((len(x), *weights.shape[:2]))
        for step, (samples, of_samples) in enumerate(zip(x, labels, strict=True)):
            losses[step] = evaluate(weights, samples, of_samples, self._grads)
            self.move(weights, self._grads)
        return losses, np.ones(losses.shape, np.int64)

    def move(self, weights: Array, grads: Array) -> None:
        """What follows on the gradients, which need not outlast it."""
        raise NotImplementedError

    def keep(self, runs: Array) -> None:
        """Go on with these runs alone."""
        self._grads = np.ascontiguousarray(self._grads[:, runs])
