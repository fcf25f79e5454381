"""The two passes over the members of a bucket, by PyTorch or compiled.

The idea. A step multiplies the gradients with all rows once (:meth:`Passes.products`), and moves
and publishes the members once (:meth:`Passes.move`). For float32 and float64 on the CPU,
``gradgroup.core._sweeps`` does either in one sweep through memory, if Numba is installed. What is
left, PyTorch does: other precisions, other devices, a machine without Numba.

Shapes. ``rows`` is (2N, d), members then gradients; a point is (1, columns).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from gradgroup.core import gram


class Passes:
    """Both passes over one matrix of members and gradients, by PyTorch."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.thetas, self.grads = rows.chunk(2)

    def products(self, *, wide: bool = False) -> np.ndarray:
        """Products of the gradients with all rows: (N, 2N), float64."""
        total: Tensor = gram(self.grads, self.rows, wide=wide)
        return total.cpu().numpy()

    def move(
        self,
        steps: Sequence[float],
        served: int | None,
        point: Tensor,
        start: int,
        along: Tensor | None = None,
    ) -> None:
        """Move what the point has of the columns from ``start``, and publish it there.

        ``θᵢ ← θᵢ + ηᵢ pᵢ``; the members move along their gradients, unless something else is given.
        """
        columns = slice(start, start + point.shape[1])
        thetas = self.thetas[:, columns]
        along = (self.grads if along is None else along)[:, columns]
        factor = torch.tensor(steps, dtype=thetas.dtype, device=thetas.device)
        thetas.addcmul_(along, factor[:, None])
        publish(thetas, served, point)


class CompiledPasses(Passes):
    """The same in one sweep each."""

    def __init__(self, rows: Tensor, sweeps: ModuleType) -> None:
        super().__init__(rows)
        self._place = sweeps.place
        self._sweeps = sweeps.Sweeps(rows.numpy())

    def products(self, *, wide: bool = False) -> np.ndarray:
        if wide:
            return super().products(wide=True)
        found: np.ndarray = self._sweeps.products(torch.get_num_threads())
        return found

    def move(
        self,
        steps: Sequence[float],
        served: int | None,
        point: Tensor,
        start: int,
        along: Tensor | None = None,
    ) -> None:
        if along is not None:
            along = along.detach().contiguous()
        self._sweeps.move(
            steps,
            _weights(len(steps), served),
            (point.data_ptr(), *point.shape),
            start,
            torch.get_num_threads(),
            None if along is None else (along.data_ptr(), *along.shape),
        )


def passes(rows: Tensor) -> Passes:
    """The compiled passes, if they are there and can take these numbers; otherwise PyTorch's."""
    sweeps = _sweeps()
    if rows.device.type != "cpu" or rows.dtype not in (torch.float32, torch.float64) or not sweeps:
        return Passes(rows)
    # On one thread they would be no match for PyTorch on many.
    return CompiledPasses(rows, sweeps) if sweeps.teams() else Passes(rows)


@lru_cache(maxsize=1)
def _sweeps() -> ModuleType | None:
    try:
        from gradgroup.core import _sweeps
    except ImportError:
        return None
    return _sweeps


def publish(thetas: Tensor, served: int | None, point: Tensor) -> None:
    """The mean of the members, or the one that is served."""
    if served is not None:
        point.copy_(thetas[served])
    elif len(thetas) == 2:
        torch.lerp(thetas[:1], thetas[1:], 0.5, out=point)
    else:
        weights = thetas.new_full((1, len(thetas)), 1.0 / len(thetas))
        torch.mm(weights, thetas, out=point)  # in half the time of a sum over rows


def _weights(members: int, served: int | None) -> list[float]:
    """What the members count in the point that is published."""
    if served is None:
        return [1.0 / members] * members
    return [float(i == served) for i in range(members)]
