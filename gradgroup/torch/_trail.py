"""Where the trajectory of ``AutoGrouping`` lives.

The idea. A :class:`Trail` is a layout of parameters (``_layout.py``) with a matrix of three rows:
the stand, at which gradients are taken; the noise; and the start. A row apart is the gradient
before, in single precision kept as bfloat16. The average needs no row, it is what the model's own
tensors hold. The scout needs none either: it lies on the line through average and stand. So that
it can be told from both, nobody else may move the average. Where somebody does (a constraint, say),
and in half precision, whose digits are too few for it, the trail keeps an average of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradgroup.core import _auto
from gradgroup.core._auto import Order, Sums, Track
from gradgroup.torch._compiled import compiled_for, place
from gradgroup.torch._layout import Layout, row_of, strided, zeros

STAND, NOISE, START = range(3)
NAMES = ("stand", "noise", "start", "last")
# Columns that plain operations take at a time: they need some twenty temporary arrays of them.
BLOCK = 1 << 17
BLOCK_ON_DEVICES = 1 << 22


class Piece(NamedTuple):
    """Parameters that are swept together."""

    start: int
    """Their first column."""
    average: Tensor
    """(1, columns); its numbers are to be moved in place."""
    grad: Tensor
    """(1, columns)."""
    homes: Sequence[Tensor]
    """Where the average is to be copied to, each (1, its columns); none if it is there already."""
    parts: Sequence[slice]


class Block(NamedTuple):
    """Some columns of a trail."""

    stand: Tensor
    noise: Tensor
    start: Tensor
    last: Tensor
    grad: Tensor


class Trail(Layout):
    """The trajectory of the parameters that share a group, a device and a dtype.

    Parameters
    ----------
    params : sequence of Tensor
        The model's parameters; the trajectory starts at their present values.
    members : int
        How many gradients a step averages.
    """

    def __init__(self, params: Sequence[Tensor], members: int) -> None:
        super().__init__(params)
        self.members = members
        like = self.params[0]
        wide = like.dtype in (torch.float32, torch.float64)
        self.dtype = like.dtype if wide else torch.float32
        self.rows = zeros(3, self.size, self.dtype, like.device)
        for row in (STAND, START):
            torch._foreach_copy_(self.views(self.rows[row]), self.homes)
        kept = torch.bfloat16 if self.dtype == torch.float32 else self.dtype
        self.last = zeros(1, self.size, kept, like.device)
        self.stand_views = self.views(self.rows[STAND])
        self.average = None if wide else self.rows[START].clone()[None]
        self.total = None if members == 1 else torch.zeros_like(self.rows[:1])
        self.total_views = [] if self.total is None else self.views(self.total[0])
        self.strides = [home.stride() for home in self.homes]
        self.grads: list[Tensor | None] = [None] * len(self.params)
        self.pieces: list[Piece] = []
        self.sweeper = sweeper(self.rows, self.last)

    # A round: gradients at the stand.

    def enter(self, i: int) -> None:
        """Make the stand the model."""
        if self.params[0].dtype == self.dtype:
            self.show(self.stand_views)
        else:
            torch._foreach_copy_(self.homes, self.stand_views)
        for p in self.params:
            p.grad = None

    def leave(self) -> None:
        """Give the model the average back."""
        if self.params[0].dtype == self.dtype:
            self.show(self.homes)
        else:
            self._publish(range(len(self.params)))

    def collect(self, i: int) -> int:
        """Take the gradients, or add them to those of the members before; how many there are."""
        found = [None if p.grad is None else strided(p.grad, p) for p in self.params]
        if self.total is None:
            self.grads = list(found)
        else:
            self._add(found, first=i == 0)
        self.pieces = list(self._pieces()) if i == self.members - 1 else []
        return sum(grad is not None for grad in found)

    def _add(self, found: Sequence[Tensor | None], *, first: bool) -> None:
        assert self.total is not None
        if first:
            self.total.zero_()
            self.grads = [None] * len(self.params)
        for k, (view, grad) in enumerate(zip(self.total_views, found, strict=True)):
            if grad is not None:
                self.grads[k] = view.add_(grad, alpha=1.0 / self.members)

    # Steps.

    def squares(self, unit: float) -> float:
        """``Σ (unit·g)²``: not finite where a gradient is not, or is too large."""
        return sum([self.sweeper.squares(piece.grad, unit) for piece in self.pieces])

    def sweep(self, order: Order) -> Sums:
        """One step of the trajectory."""
        found = []
        for piece in self.pieces:
            found.append(self.sweeper.sweep(piece, order))
            if piece.homes:
                parts = [piece.average[:, part] for part in piece.parts]
                torch._foreach_copy_(list(piece.homes), parts)
        self.note_versions()
        return added(found)

    def _pieces(self) -> Iterator[Piece]:
        """Chunks of parameters with their gradients; those without one are left out."""
        for chunk in self.chunks:
            numbers = range(chunk.first, chunk.first + len(chunk.homes))
            if not any(self.grads[k] is None for k in numbers):
                yield self._piece(chunk.start, chunk.size, chunk.homes, chunk.parts, numbers)
                continue
            for k, home in zip(numbers, chunk.homes, strict=True):
                if self.grads[k] is not None:
                    size = home.shape[1]
                    yield self._piece(self.columns[k].start, size, [home], [slice(size)], (k,))

    def _piece(
        self,
        start: int,
        size: int,
        homes: Sequence[Tensor],
        parts: Sequence[slice],
        numbers: Sequence[int],
    ) -> Piece:
        grads = [self._grad(k) for k in numbers]
        grad = grads[0] if len(grads) == 1 else torch.cat(grads, dim=1)
        if self.average is not None:
            return Piece(start, self.average[:, start : start + size], grad, homes, parts)
        if len(homes) == 1:
            return Piece(start, homes[0], grad, (), ())
        return Piece(start, torch.cat(list(homes), dim=1), grad, homes, parts)

    def _grad(self, k: int) -> Tensor:
        """A gradient as (1, its columns), in the order of its parameter's memory."""
        grad = self.grads[k]
        assert grad is not None
        if grad.stride() != self.strides[k]:
            grad = torch.empty_like(self.homes[k]).copy_(grad)
        return row_of(grad if grad.dtype == self.dtype else grad.to(self.dtype))

    # The start.

    def look(self, level: float, unit: float) -> Sums:
        """Put the stand at the end of the first direction."""
        return added([self._look(block, level, unit) for block in self._blocks()])

    def _look(self, block: Block, level: float, unit: float) -> Sums:
        grad = block.grad * unit
        direction, sums = _auto.first_direction(grad, level)
        block.last.copy_(grad)
        block.noise.copy_(grad * grad)
        torch.sub(block.start, direction, out=block.stand)
        return numbers(sums)

    def slope(self, unit: float) -> float:
        """How fast the loss falls at the stand, along the whole way from the start."""
        falls = [
            float(((block.start - block.stand).double() * block.grad).sum())
            for block in self._blocks()
        ]
        return unit * sum(falls)

    def _blocks(self) -> Iterator[Block]:
        """Columns of the pieces, so few that temporary arrays of them do not matter."""
        for piece in self.pieces:
            for cut in cuts_of(piece.grad):
                columns = slice(piece.start + cut.start, piece.start + cut.stop)
                stand, noise, start = self.rows[:, columns]
                yield Block(stand, noise, start, self.last[0, columns], piece.grad[0, cut])

    def stretch(self, factor: float) -> None:
        """Multiply the way from the start to the stand."""
        self.rows[STAND].sub_(self.rows[START]).mul_(factor).add_(self.rows[START])

    def settle(self) -> None:
        """Let the trajectory begin at the stand."""
        if self.average is not None:
            self.average.copy_(self.rows[STAND])
        torch._foreach_copy_(self.homes, self.stand_views)
        self.note_versions()

    def retreat(self) -> None:
        """Bring the scout, and with it the stand, halfway back to the average."""
        average = self.centre().to(self.dtype) if self.average is None else self.average[0]
        self.rows[STAND].lerp_(average, 0.5)

    # Parameters that others change.

    def follow(self) -> None:
        """Move along with parameters that were changed from outside.

        The first time, the average as it was is lost, and with it the scout, which returns to it;
        from then on the trail keeps an average of its own.
        """
        centre = self.centre().to(self.dtype)
        if self.average is None:
            self.average = centre[None]
            self.rows[STAND] = centre
        elif not self._published(centre):
            self.rows[STAND] += centre - self.average[0]
            self.average[0] = centre
        self.note_versions()

    def _published(self, centre: Tensor) -> bool:
        assert self.average is not None
        return torch.equal(self.average[0].to(self.params[0].dtype).to(self.dtype), centre)

    def _publish(self, numbers: Sequence[int]) -> None:
        """Copy the trail's own average to the model."""
        assert self.average is not None
        views = self.views(self.average[0])
        torch._foreach_copy_([self.homes[k] for k in numbers], [views[k] for k in numbers])
        self.note_versions()

    # Saving and restoring.

    def save(self, state: dict[Tensor, dict[str, Any]]) -> None:
        """Copy everything of size d to the parameters' entries of an optimizer's state."""
        for name, row in self._named().items():
            for p, view in zip(self.params, self.views(row), strict=True):
                state[p][name] = view.clone()

    def _named(self) -> dict[str, Tensor]:
        rows = dict(zip(NAMES, (*self.rows, self.last[0]), strict=True))
        return rows if self.average is None else rows | {"average": self.average[0]}

    def is_saved(self, state: Mapping[Tensor, dict[str, Any]]) -> bool:
        """Whether the state has a trail for all of these parameters."""
        return all(name in state.get(p, {}) for p in self.params for name in NAMES)

    def restore(self, state: Mapping[Tensor, dict[str, Any]]) -> None:
        """Take it back."""
        if "average" in state[self.params[0]]:
            self.average = torch.empty_like(self.rows[:1])
        for name, row in self._named().items():
            for p, view in zip(self.params, self.views(row), strict=True):
                self._check_saved(view, state[p][name])
                view.copy_(state[p][name])

    def _check_saved(self, view: Tensor, saved: Tensor) -> None:
        if view.shape != saved.shape:
            raise ValueError(
                f"The saved state has a parameter of shape {tuple(saved.shape)}, but this "
                f"optimizer has one of shape {tuple(view.shape)} in its place: build it for the "
                "model that was saved."
            )


def added(found: Sequence[Sums]) -> Sums:
    """The sums over several pieces, or over none."""
    if len(found) == 1:
        return found[0]
    columns = zip(Sums(0.0, 0.0, 0.0, 0.0), *found, strict=True)
    return Sums(*(sum(parts) for parts in columns))


def numbers(sums: Sums) -> Sums:
    """Sums as Python numbers, which on a GPU have to be waited for."""
    return Sums(*(float(value) for value in sums))


def cuts_of(row: Tensor) -> list[slice]:
    """Where to cut (1, columns) into blocks."""
    block = BLOCK if row.device.type == "cpu" else BLOCK_ON_DEVICES
    columns = row.shape[1]
    return [slice(low, min(low + block, columns)) for low in range(0, columns, block)]


class Sweeper:
    """The sweep by PyTorch."""

    def __init__(self, rows: Tensor, last: Tensor) -> None:
        self.rows, self.last = rows, last

    def squares(self, grad: Tensor, unit: float) -> float:
        return float((grad * unit).double().square().sum())

    def sweep(self, piece: Piece, order: Order) -> Sums:
        return numbers(added([self._block(piece, cut, order) for cut in cuts_of(piece.grad)]))

    def _block(self, piece: Piece, cut: slice, order: Order) -> Sums:
        columns = slice(piece.start + cut.start, piece.start + cut.stop)
        last = self.last[0, columns]
        stand, noise, start = self.rows[:, columns]
        old = Track(piece.average[0, cut], stand, noise, start, last)
        new, sums = _auto.sweep(old._replace(last=last.to(stand)), piece.grad[0, cut], order)
        for row, moved in zip(old, new, strict=True):
            row.copy_(moved)
        return sums


class CompiledSweeper(Sweeper):
    """The same in one pass through memory."""

    def __init__(self, rows: Tensor, last: Tensor, compiled: ModuleType) -> None:
        super().__init__(rows, last)
        bits = last.view(torch.uint16) if last.dtype == torch.bfloat16 else last
        self._compiled = compiled.Sweep(rows.numpy(), bits.numpy())

    def squares(self, grad: Tensor, unit: float) -> float:
        found: float = self._compiled.squares(place(grad), unit, torch.get_num_threads())
        return found

    def sweep(self, piece: Piece, order: Order) -> Sums:
        places = place(piece.average), place(piece.grad)
        threads = torch.get_num_threads()
        return Sums(*self._compiled.sweep(piece.start, *places, order, threads))


def sweeper(rows: Tensor, last: Tensor) -> Sweeper:
    """The compiled sweep, if it is there and can take these numbers; otherwise PyTorch's."""
    found = compiled_for("_auto_sweep", rows)
    return Sweeper(rows, last) if found is None else CompiledSweeper(rows, last, found)
