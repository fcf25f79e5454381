"""The baselines' update rules, for a stack of runs with a learning rate each.

The idea. A rule is what PyTorch's optimizer does to one number, with PyTorch's defaults: from the
weight, its gradient and two numbers of memory to the new weight and memory. Numba makes one loop
over all numbers of it, which goes through memory once where array operations would some ten times.
What does not depend on the number is computed beforehand, for every run, by the rule's
*coefficients*.

Conventions. ``weights``, ``grads`` and both memories are (groups, runs, numbers), of one dtype. The
coefficients of a run are four numbers of that dtype: one of float64 would widen the whole loop, and
make it fifty times slower. ``t`` counts steps from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gradgroup.experiments.engine._by_gradient import ByGradient
from gradgroup.experiments.engine._compiling import compiled_anew
from gradgroup.experiments.engine._softmax import Array

MOMENTUM = 0.9
"""The only one that is not PyTorch's default, which is none: Nesterov's method needs some."""
SMOOTHING = 0.99
BETAS = (0.9, 0.999)
TINY = 1e-8

Coefficients = tuple[float, float, float, float]


class Rule(NamedTuple):
    """An optimizer that moves every number by itself."""

    coefficients: Callable[[float, int], Coefficients]
    """From the learning rate and t."""
    update: Any
    """``(w, g, a, b, *coefficients) -> (w, a, b)``, compiled."""


@compiled_anew
def _sgd(w, g, a, b, rate, c1, c2, c3):
    return w - rate * g, a, b


@compiled_anew
def _nesterov(w, g, velocity, b, rate, momentum, c2, c3):
    velocity = momentum * velocity + g
    return w - rate * (g + momentum * velocity), velocity, b


@compiled_anew
def _rmsprop(w, g, square, b, rate, new, tiny, c3):
    square = square + new * (g * g - square)
    return w - rate * g / (np.sqrt(square) + tiny), square, b


@compiled_anew
def _adam(w, g, mean, square, step, new_mean, new_square, tiny):
    mean = mean + new_mean * (g - mean)
    square = square + new_square * (g * g - square)
    return w - step * mean / (np.sqrt(square) + tiny), mean, square


def _of_sgd(rate: float, t: int) -> Coefficients:
    return rate, 0.0, 0.0, 0.0


def _of_nesterov(rate: float, t: int) -> Coefficients:
    return rate, MOMENTUM, 0.0, 0.0


def _of_rmsprop(rate: float, t: int) -> Coefficients:
    return rate, 1.0 - SMOOTHING, TINY, 0.0


def _of_adam(rate: float, t: int) -> Coefficients:
    """Both corrections of the bias, of mean and of square, are taken into step and ε."""
    mean, root = 1.0 - BETAS[0] ** t, math.sqrt(1.0 - BETAS[1] ** t)
    return rate * root / mean, 1.0 - BETAS[0], 1.0 - BETAS[1], TINY * root


RULES = {
    "SGD": Rule(_of_sgd, _sgd),
    "Nesterov": Rule(_of_nesterov, _nesterov),
    "RMSprop": Rule(_of_rmsprop, _rmsprop),
    "Adam": Rule(_of_adam, _adam),
}


class FirstOrder(ByGradient):
    """One of the rules at work on a stack.

    Parameters
    ----------
    name : str
        One of :data:`RULES`.
    rates : sequence of float
        The runs' learning rates.
    weights : array of shape (groups, runs, outputs, inputs)
        Where the runs start.
    """

    def __init__(self, name: str, rates: Sequence[float], weights: Array) -> None:
        super().__init__(weights)
        self._rule, self._loop = RULES[name], _loop(name)
        self._rates, self._t = list(rates), 0
        self._memory = np.zeros((2, *weights.shape), weights.dtype)

    def move(self, weights: Array, grads: Array) -> None:
        """One step of all runs."""
        self._t += 1
        coefficients = [self._rule.coefficients(rate, self._t) for rate in self._rates]
        told = np.array(coefficients, weights.dtype)
        self._loop(*map(_flat, (weights, grads, *self._memory)), told)

    def keep(self, runs: Array) -> None:
        """Go on with these runs alone."""
        super().keep(runs)
        self._memory = np.ascontiguousarray(self._memory[:, :, runs])
        self._rates = [self._rates[k] for k in runs]


def _flat(stack: Array) -> Array:
    groups, runs = stack.shape[:2]
    return stack.reshape(groups, runs, -1)


@lru_cache
def _loop(name: str) -> Any:
    update = RULES[name].update

    @compiled_anew
    def loop(weights, grads, first, second, told):
        for group in range(weights.shape[0]):
            for run in range(weights.shape[1]):
                w, g, a, b = (
                    weights[group, run],
                    grads[group, run],
                    first[group, run],
                    second[group, run],
                )
                c0, c1, c2, c3 = told[run, 0], told[run, 1], told[run, 2], told[run, 3]
                for k in range(w.shape[0]):
                    w[k], a[k], b[k] = update(w[k], g[k], a[k], b[k], c0, c1, c2, c3)

    return loop
