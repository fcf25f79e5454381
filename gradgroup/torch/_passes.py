"""The two passes over the members of a bucket, by PyTorch or compiled.

The idea. A step multiplies the gradients with all rows once (:meth:`Passes.products`), and moves
and publishes the members once (:meth:`Passes.move`). For float32 and float64 on the CPU,
``gradgroup.core._sweeps`` does either in one sweep through memory, if Numba is installed. What is
left, PyTorch does: other precisions, other devices, a machine without Numba.

Shapes. ``rows`` is (2N, d), members then gradients; what they move along is (N, d).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from gradgroup.core import gram
from gradgroup.torch._compiled import compiled_for, place

# Where a point begins among the columns, and the point: (1, columns).
Points: TypeAlias = Iterable[tuple[int, Tensor]]


class Passes:
    """Both passes over one matrix of members and gradients, by PyTorch."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.thetas, self.grads = rows.chunk(2)
        self._equally = rows.new_full((1, len(self.thetas)), 1.0 / len(self.thetas))

    def products(self, *, wide: bool = False) -> np.ndarray:
        """Products of the gradients with all rows: (N, 2N), float64."""
        total: Tensor = gram(self.grads, self.rows, wide=wide)
        return total.cpu().numpy()

    def move(
        self, steps: Sequence[float], served: int | None, points: Points, along: Tensor
    ) -> None:
        """``θᵢ ← θᵢ + ηᵢ pᵢ`` in the columns of each point, and publish them there."""
        factor = torch.tensor(steps, dtype=self.rows.dtype, device=self.rows.device)[:, None]
        for start, point in points:
            columns = slice(start, start + point.shape[1])
            self.thetas[:, columns].addcmul_(along[:, columns], factor)
            self.publish(served, point, start)

    def publish(self, served: int | None, point: Tensor, start: int = 0) -> None:
        """The mean of the members, or the one that is served, in the columns of a point."""
        thetas = self.thetas[:, start : start + point.shape[1]]
        if served is not None:
            point.copy_(thetas[served])
        elif len(thetas) == 2:
            torch.lerp(thetas[:1], thetas[1:], 0.5, out=point)
        else:
            torch.mm(self._equally, thetas, out=point)  # in half the time of a sum over rows


class CompiledPasses(Passes):
    """The same in one sweep each."""

    def __init__(self, rows: Tensor, sweeps: ModuleType) -> None:
        super().__init__(rows)
        self._sweeps = sweeps.Sweeps(rows.numpy())

    def products(self, *, wide: bool = False) -> np.ndarray:
        if wide:
            return super().products(wide=True)
        found: np.ndarray = self._sweeps.products(torch.get_num_threads())
        return found

    def move(
        self, steps: Sequence[float], served: int | None, points: Points, along: Tensor
    ) -> None:
        along = along.detach().contiguous()
        places = ((start, place(point)) for start, point in points)
        weights = _weights(len(steps), served)
        self._sweeps.move(steps, weights, places, place(along), torch.get_num_threads())


def _weights(members: int, served: int | None) -> list[float]:
    """What the members count in the point that is published."""
    if served is None:
        return [1.0 / members] * members
    return [float(i == served) for i in range(members)]


def passes(rows: Tensor) -> Passes:
    """The compiled passes, if they are there and can take these numbers; otherwise PyTorch's."""
    sweeps = compiled_for("_sweeps", rows)
    return Passes(rows) if sweeps is None else CompiledPasses(rows, sweeps)
