"""Where the members live: rows of one buffer for each kind of parameter.

The idea. All parameters of one group, device and dtype form a :class:`Bucket` whose d numbers
stand side by side in the columns of one matrix ``rows`` of shape (2N, d): the N members
first, their N gradients below. One pass over ``rows`` gives both Gram matrices, one more
moves the members. While a member is evaluated, the model's parameters *are* views of its
row; otherwise they are the model's own tensors ("home"), which hold the published point.

Nothing of size d is copied but a gradient, once, from where autograd left it to its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradgroup.core import Grams, grams
from gradgroup.core._directions import Direction
from gradgroup.core._solve import BLOCK, loses_digits
from gradgroup.torch._passes import passes

# Small parameters are published together, up to this many numbers at a time. Larger ones are
# moved and published whole: shorter pieces, that stay in cache between the two, gain nothing.
CHUNK = 16 * BLOCK
# Before the names of a direction's arrays in a parameter's state.
DIRECTION = "direction."


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


class Bucket:
    """The members of the parameters that share a group, a device and a dtype.

    Parameters
    ----------
    params : sequence of Tensor
        The model's parameters; their present values are every member's first.
    members : int
        N.
    """

    def __init__(self, params: Sequence[Tensor], members: int) -> None:
        self.params = list(params)
        self.members = members
        self.homes = [_dense(p) for p in self.params]
        self.columns = _columns(self.params)
        self.size = self.columns[-1].stop
        self.rows = _zeros(2 * members, self.size, self.params[0])
        self.thetas, self.grads = self.rows[:members], self.rows[members:]
        self.passes = passes(self.rows)
        self.views = [self._views(self.thetas, i) for i in range(members)]
        self.grad_views = [self._views(self.grads, i) for i in range(members)]
        self.chunks = [self._chunk(*bounds) for bounds in pairwise(_cuts(self.columns))]
        self.unused: set[tuple[int, int]] = set()
        self.arrays: dict[str, Tensor] = {}
        self.numbers: dict[str, Any] = {}
        self.thetas.copy_(self.centre().expand_as(self.thetas))
        self.note_versions()

    def _views(self, rows: Tensor, i: int) -> list[Tensor]:
        """Row ``i`` cut into tensors laid out in memory as the parameters are."""
        return [stack[i] for stack in self.stacked(rows)]

    def _chunk(self, first: int, last: int) -> Chunk:
        """The chunk of the parameters from ``first`` to before ``last``."""
        start, stop = self.columns[first].start, self.columns[last - 1].stop
        homes = [_flat(home)[None] for home in self.homes[first:last]]
        parts = [slice(cut.start - start, cut.stop - start) for cut in self.columns[first:last]]
        return Chunk(start, stop - start, homes, parts)

    def stacked(self, rows: Tensor) -> list[Tensor]:
        """All rows cut into tensors of shape (N, *shape of the parameter)."""
        return [
            rows.as_strided(
                (self.members, *home.shape),
                (self.size, *home.stride()),
                rows.storage_offset() + cut.start,
            )
            for home, cut in zip(self.homes, self.columns, strict=True)
        ]

    # Evaluating the members.

    def enter(self, i: int) -> None:
        """Make member ``i`` the model."""
        for p, view in zip(self.params, self.views[i], strict=True):
            p.data = view
            p.grad = None

    def leave(self) -> None:
        """Give the model its own tensors back."""
        for p, home in zip(self.params, self.homes, strict=True):
            p.data = home

    def collect(self, i: int) -> int:
        """Move the model's gradients to member ``i``'s row; how many there were."""
        rows, grads = [], []
        for k, (p, row) in enumerate(zip(self.params, self.grad_views[i], strict=True)):
            if p.grad is None:
                self.unused.add((i, k))
                row.zero_()
                continue
            self.unused.discard((i, k))
            if p.grad.layout is not torch.strided:
                raise RuntimeError(
                    f"A parameter of shape {tuple(p.shape)} has a sparse gradient, which members "
                    "cannot hold: build its layer with sparse=False, or give the parameter to "
                    "torch.optim.SparseAdam."
                )
            rows.append(row)
            grads.append(p.grad)
        if rows:
            torch._foreach_copy_(rows, grads)
        return len(rows)

    # The solve's view of the members.

    def grams(self, directions: Tensor | None = None) -> Grams:
        """The two Gram matrices of Lemma 1, as NumPy arrays of float64."""
        if directions is not None:
            return Grams(*(g.cpu().numpy() for g in grams(self.thetas, directions)))
        found = self._split(self.passes.products())
        if self.rows.dtype == torch.float32 and loses_digits(found):
            found = self._split(self.passes.products(wide=True))
        return found

    def _split(self, found: np.ndarray) -> Grams:
        return Grams(gg=found[:, self.members :], gt=found[:, : self.members])

    def move(
        self, steps: Sequence[float], served: int | None, directions: Tensor | None = None
    ) -> None:
        """``Θ ← Θ + diag(η) G``; then publish the mean, or the member that is served."""
        along = self.grads if directions is None else directions
        self.passes.move(steps, served, self._points(), along)

    def _points(self) -> Iterator[tuple[int, Tensor]]:
        """Where each chunk begins, and what to write there; several homes get theirs after that."""
        for chunk in self.chunks:
            if len(chunk.homes) == 1:
                yield chunk.start, chunk.homes[0]
                continue
            point = self.rows.new_empty(1, chunk.size)
            yield chunk.start, point
            torch._foreach_copy_(chunk.homes, [point[:, part] for part in chunk.parts])

    def decay(self, weight: float) -> None:
        """``G ← G + λΘ`` wherever there is a gradient."""
        self.grads.add_(self.thetas, alpha=weight)
        self._clear_unused(self.grads)

    def penalty(self, weight: float) -> Tensor:
        """``λ/2 ‖θ‖²`` of each member."""
        norms: Tensor = torch.linalg.vector_norm(self.thetas, dim=1)
        return 0.5 * weight * norms.double().square().cpu()

    def directions(self, rule: Direction) -> Tensor:
        """What a rule makes of the gradients, its state kept in the bucket."""
        state = {**self.arrays, **self.numbers}
        found, state = rule(self.grads, self.thetas, state)
        directions: Tensor = found
        if directions.shape != self.grads.shape:
            raise ValueError(
                f"direction must return directions of the shape of the gradients, "
                f"{tuple(self.grads.shape)}, but returned {tuple(directions.shape)}."
            )
        self.arrays = {key: v for key, v in state.items() if isinstance(v, Tensor)}
        self.numbers = {key: v for key, v in state.items() if not isinstance(v, Tensor)}
        if not self.unused:
            return directions
        kept = directions.clone()
        self._clear_unused(kept)
        return kept

    def _clear_unused(self, rows: Tensor) -> None:
        for i, k in self.unused:
            rows[i, self.columns[k]] = 0.0

    # The centre, and the members about it.

    def centre(self) -> Tensor:
        """The model's own parameters, side by side."""
        return torch.cat([_flat(home) for home in self.homes])

    def place(self, line: Tensor | None, each: float, seed: int) -> None:
        """Members at the centre, plus ``line[i]`` mean gradients, plus noise of scale ``each``.

        The noise of all members sums to zero, and is the same for the same seed.
        """
        self.thetas.copy_(self.centre().expand_as(self.thetas))
        if line is not None and line.any():
            self.thetas.addcmul_(self.grads.mean(0), line.to(self.rows)[:, None])
        if each:
            generator = torch.Generator().manual_seed(seed)
            for part in torch.split(self.thetas, CHUNK, dim=1):
                noise = torch.randn(part.shape, generator=generator)
                part.add_((noise - noise.mean(0)).to(part), alpha=each)

    def contract(self, factor: float) -> None:
        """Draw the members towards the centre."""
        self.thetas.lerp_(self.centre().expand_as(self.thetas), 1.0 - factor)

    def moved_away(self) -> bool:
        """Whether the model's parameters are other tensors than those we know (``model.to``)."""
        pairs = zip(self.params, self.homes, strict=True)
        return any(p.data_ptr() != home.data_ptr() or p.dtype != home.dtype for p, home in pairs)

    def note_versions(self) -> None:
        self.versions = [p._version for p in self.params]

    def changed(self) -> bool:
        """Whether somebody wrote to the model's parameters since we did."""
        return self.versions != [p._version for p in self.params]

    def follow(self, served: int | None) -> None:
        """Move the members along with parameters that were changed from outside."""
        published = torch.empty_like(self.thetas[:1])
        self.passes.publish(served, published)
        shift = self.centre() - published[0]
        rounding = 8 * torch.finfo(shift.dtype).eps * self.thetas.abs().max()
        if shift.abs().max() > rounding:
            self.thetas += shift
        self.note_versions()

    # Saving and restoring.

    def save(self, state: dict[Tensor, dict[str, Any]]) -> None:
        """Copy everything of size d to the parameters' entries of an optimizer's state."""
        for k, (p, cut) in enumerate(zip(self.params, self.columns, strict=True)):
            state[p]["members"] = torch.stack([views[k] for views in self.views])
            for key, array in self.arrays.items():
                state[p][DIRECTION + key] = array[..., cut].clone()

    def restore(self, state: dict[Tensor, dict[str, Any]]) -> bool:
        """Take it back; False when these parameters have no members in the state."""
        saved = [state.get(p, {}) for p in self.params]
        if not all("members" in entry for entry in saved):
            return False
        for k, entry in enumerate(saved):
            self._check_saved(k, entry["members"])
            for i, views in enumerate(self.views):
                views[k].copy_(entry["members"][i])
        keys = [key for key in saved[0] if key.startswith(DIRECTION)]
        self.arrays = {
            key.removeprefix(DIRECTION): torch.cat([entry[key] for entry in saved], dim=-1)
            for key in keys
        }
        return True

    def _check_saved(self, k: int, members: Tensor) -> None:
        expected = (self.members, *self.params[k].shape)
        if tuple(members.shape) != expected:
            raise ValueError(
                f"The saved state has members of shape {tuple(members.shape)}, but this optimizer "
                f"has {self.members} members of a parameter of shape "
                f"{tuple(self.params[k].shape)}: build it with the settings that were saved."
            )


def _zeros(rows: int, columns: int, like: Tensor) -> Tensor:
    """A matrix of zeros, in huge pages where the system grants them on request.

    NumPy requests them for large arrays, PyTorch does not; passes over the members take about
    a sixth less time there.
    """
    if like.device.type != "cpu":
        return torch.zeros(rows, columns, dtype=like.dtype, device=like.device)
    # Bytes, because NumPy does not know all of PyTorch's dtypes.
    raw = np.zeros(rows * columns * like.element_size(), dtype=np.uint8)
    return torch.from_numpy(raw).view(like.dtype).view(rows, columns)


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


def _flat(home: Tensor) -> Tensor:
    """All numbers of a dense tensor in the order they have in memory."""
    return home.as_strided((home.numel(),), (1,))


def buckets_of(groups: Sequence[dict[str, Any]], members: int) -> Iterator[tuple[int, Bucket]]:
    """The buckets of all parameter groups, each with its group's number."""
    for number, group in enumerate(groups):
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for p in group["params"]:
            kinds.setdefault((p.device, p.dtype), []).append(p)
        for params in kinds.values():
            yield number, Bucket(params, members)
