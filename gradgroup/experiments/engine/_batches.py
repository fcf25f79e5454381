"""Which samples a step sees, and where a run starts: the same for all optimizers.

The idea. The seed decides, and nothing else. A *stream* goes through all samples in a random order,
64 a step, and begins a new order with every epoch; the few that fill no batch are left out. One
gradient of 64 samples sees the whole of it, two members of 32 a half each. Members that together
see more take further streams, so that the number of steps is the same for all.

Conventions. Rows of samples are (steps, members, batch). Starting weights are drawn as PyTorch
draws those of ``torch.nn.Linear``: uniform, at most 1/√inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gradgroup.experiments.engine._compiling import compiled
from gradgroup.experiments.engine._setting import BATCH, Setting
from gradgroup.experiments.engine._softmax import Array

# What the numbers are drawn for, so that no two are drawn from one sequence.
_WEIGHTS, _ORDER = 0, 1


def start(setting: Setting, outputs: int, inputs: int) -> Array:
    """The members' weights, (members, outputs, inputs) float64.

    Baselines have one member, which starts where the first of a group does.
    """
    shape = (outputs, inputs)
    bound = (1.0 if setting.spread is None else setting.spread) / np.sqrt(inputs)
    draws = (np.random.default_rng((setting.seed, _WEIGHTS, k)) for k in range(setting.members))
    return np.stack([draw.uniform(-bound, bound, shape) for draw in draws])


def rows_of(setting: Setting, samples: int, epoch: int) -> Array:
    """Which samples each member sees in each step of an epoch."""
    seen = setting.batch if setting.common else setting.gradients
    streams = [_stream(setting.seed, samples, epoch, k) for k in range(-(-seen // BATCH))]
    rows = np.concatenate(streams, axis=1)[:, :seen]
    if setting.common:
        return np.repeat(rows[:, None], setting.members, axis=1)
    return rows.reshape(len(rows), setting.members, setting.batch)


def _stream(seed: int, samples: int, epoch: int, number: int) -> Array:
    order = np.random.default_rng((seed, _ORDER, number, epoch)).permutation(samples)
    return order[: samples - samples % BATCH].reshape(-1, BATCH)


def steps_of(samples: int) -> int:
    """How many steps an epoch has."""
    return samples // BATCH


class Pixels:
    """Pixels as a model sees them, made of bytes batch by batch.

    Parameters
    ----------
    x : array of uint8, shape (samples, inputs)
    top : int
        The largest value a pixel can have.
    kind : str
        ``"unit"`` for [0, 1]; ``"standard"`` for mean 0 and standard deviation 1.
    """

    def __init__(self, x: Array, top: int, kind: str, dtype: Any = np.float32) -> None:
        self._x = x
        mean, std = (0.0, float(top)) if kind == "unit" else _moments(x)
        self._scale, self._shift = dtype(1.0 / std), dtype(-mean / std)

    def rows(self, rows: Array) -> Array:
        """Samples by number: (…, inputs) in floating point."""
        found = np.empty((rows.size, self._x.shape[1]), self._scale.dtype)
        _take(self._x, rows.ravel(), self._scale, self._shift, found)
        return found.reshape(*rows.shape, -1)

    def blocks(self, size: int = 1_000) -> Iterator[tuple[slice, Array]]:
        """All samples, so many at a time."""
        for low in range(0, len(self._x), size):
            numbers = np.arange(low, min(low + size, len(self._x)))
            yield slice(low, low + len(numbers)), self.rows(numbers)


def _moments(x: Array) -> tuple[float, float]:
    """Mean and standard deviation of all pixels, without a float for each."""
    counts = np.zeros(256, np.int64)
    for part in np.array_split(x, 64):
        counts += np.bincount(part.ravel(), minlength=256)
    values, total = np.arange(256), counts.sum()
    mean = (counts * values).sum() / total
    return float(mean), float(np.sqrt((counts * (values - mean) ** 2).sum() / total))


@compiled
def _take(x, rows, scale, shift, found):
    for k in range(rows.shape[0]):
        row = x[rows[k]]
        for j in range(row.shape[0]):
            found[k, j] = scale * row[j] + shift
