"""How a model's parameters lie side by side in the columns of a matrix.

The idea. All parameters of one group, device and dtype have d numbers together. An optimizer keeps
what it needs of that size as rows of one matrix, in whose columns the parameters stand side by
side, in the order their numbers have in memory. A point that is to be evaluated is one of the rows:
while it is, the model's parameters *are* views of it; otherwise they are the model's own tensors
("homes"), which hold the published point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from gradgroup.core._solve import BLOCK

# Small parameters are published together, up to this many numbers at a time. Larger ones are
# moved and published whole: shorter pieces, that stay in cache between the two, gain nothing.
CHUNK = 16 * BLOCK


class Chunk(NamedTuple):
    """One large parameter or several small ones: their columns, and where they are published."""

    start: int
    """The first column."""
    size: int
    """How many columns there are."""
    homes: list[Tensor]
    """The model's own tensors, each of shape (1, its size)."""
    parts: list[slice]
    """Which of these columns each of them is."""
    first: int
    """The number of its first parameter."""


class Layout:
    """The parameters that share a group, a device and a dtype."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        self.homes = [_dense(p) for p in self.params]
        self.columns = _columns(self.params)
        self.size = self.columns[-1].stop
        self.chunks = [self._chunk(*bounds) for bounds in pairwise(_cuts(self.columns))]
        self.note_versions()

    def _chunk(self, first: int, last: int) -> Chunk:
        """The chunk of the parameters from ``first`` to before ``last``."""
        start, stop = self.columns[first].start, self.columns[last - 1].stop
        homes = [row_of(home) for home in self.homes[first:last]]
        parts = [slice(cut.start - start, cut.stop - start) for cut in self.columns[first:last]]
        return Chunk(start, stop - start, homes, parts, first)

    def stacked(self, rows: Tensor) -> list[Tensor]:
        """All rows cut into tensors of shape (rows, *shape of the parameter)."""
        return [
            rows.as_strided(
                (len(rows), *home.shape),
                (self.size, *home.stride()),
                rows.storage_offset() + cut.start,
            )
            for home, cut in zip(self.homes, self.columns, strict=True)
        ]

    def views(self, row: Tensor) -> list[Tensor]:
        """A row cut into tensors laid out in memory as the parameters are."""
        return [stack[0] for stack in self.stacked(row[None])]

    def show(self, tensors: Sequence[Tensor]) -> None:
        """Make these tensors the model's parameters."""
        for p, tensor in zip(self.params, tensors, strict=True):
            p.data = tensor

    def centre(self) -> Tensor:
        """The model's own parameters, side by side."""
        return torch.cat([row_of(home) for home in self.homes], dim=1)[0]

    def moved_away(self) -> bool:
        """Whether the model's parameters are other tensors than those we know (``model.to``)."""
        pairs = zip(self.params, self.homes, strict=True)
        return any(p.data_ptr() != home.data_ptr() or p.dtype != home.dtype for p, home in pairs)

    def note_versions(self) -> None:
        self.versions = [p._version for p in self.params]

    def changed(self) -> bool:
        """Whether somebody wrote to the model's parameters since we did."""
        return self.versions != [p._version for p in self.params]


Kind = TypeVar("Kind", bound=Layout)


def layouts_of(
    groups: Sequence[dict[str, Any]], build: Callable[[Sequence[Tensor]], Kind]
) -> Iterator[tuple[int, Kind]]:
    """The layouts of all parameter groups, each with its group's number."""
    for number, group in enumerate(groups):
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for p in group["params"]:
            kinds.setdefault((p.device, p.dtype), []).append(p)
        for params in kinds.values():
            yield number, build(params)


def strided(grad: Tensor, p: Tensor) -> Tensor:
    """The gradient of a parameter, if it is dense."""
    if grad.layout is not torch.strided:
        raise RuntimeError(
            f"A parameter of shape {tuple(p.shape)} has a sparse gradient, which members "
            "cannot hold: build its layer with sparse=False, or give the parameter to "
            "torch.optim.SparseAdam."
        )
    return grad


def zeros(rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A matrix of zeros, in huge pages where the system grants them on request.

    NumPy requests them for large arrays, PyTorch does not; passes over the members take about
    a sixth less time there.
    """
    if device.type != "cpu":
        return torch.zeros(rows, columns, dtype=dtype, device=device)
    # Bytes, because NumPy does not know all of PyTorch's dtypes.
    raw = np.zeros(rows * columns * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(rows, columns)


def row_of(dense: Tensor) -> Tensor:
    """All numbers of a dense tensor in the order they have in memory, as (1, their number)."""
    size = dense.numel()
    return dense.as_strided((1, size), (size, 1))


def _columns(params: Sequence[Tensor]) -> list[slice]:
    stops = torch.tensor([p.numel() for p in params]).cumsum(0).tolist()
    return [slice(stop - p.numel(), stop) for p, stop in zip(params, stops, strict=True)]


def _cuts(columns: Sequence[slice]) -> list[int]:
    """Where to cut a row of parameters so that those of a piece have CHUNK columns, or are one."""
    cuts = [0]
    for k, column in enumerate(columns):
        if k > cuts[-1] and column.stop - columns[cuts[-1]].start > CHUNK:
            cuts.append(k)
    return [*cuts, len(columns)]


def _dense(p: Tensor) -> Tensor:
    """The parameter's own tensor, made contiguous only where its numbers have gaps."""
    expected = 1
    for stride, size in sorted(zip(p.stride(), p.shape, strict=True)):
        if size > 1 and stride != expected:
            p.data = p.data.contiguous()
            break
        expected *= size
    return p.data
