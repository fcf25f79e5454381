"""Where the members live: rows of one matrix for each kind of parameter.

The idea. A :class:`Bucket` is a layout of parameters (``_layout.py``) with a matrix ``rows`` of
shape (2N, d): the N members first, their N gradients below. One pass over ``rows`` gives both Gram
matrices, one more moves the members. Nothing of size d is copied but a gradient, once, from where
autograd left it to its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradgroup.core import Grams, grams
from gradgroup.core._directions import Direction
from gradgroup.core._solve import loses_digits
from gradgroup.torch._layout import CHUNK, Layout, strided, zeros
from gradgroup.torch._passes import passes

# Before the names of a direction's arrays in a parameter's state.
DIRECTION = "direction."


class Bucket(Layout):
    """The members of the parameters that share a group, a device and a dtype.

    Parameters
    ----------
    params : sequence of Tensor
        The model's parameters; their present values are every member's first.
    members : int
        N.
    """

    def __init__(self, params: Sequence[Tensor], members: int) -> None:
        super().__init__(params)
        self.members = members
        like = self.params[0]
        self.rows = zeros(2 * members, self.size, like.dtype, like.device)
        self.thetas, self.grads = self.rows[:members], self.rows[members:]
        self.passes = passes(self.rows)
        self.member_views = [self.views(theta) for theta in self.thetas]
        self.grad_views = [self.views(grad) for grad in self.grads]
        self.unused: set[tuple[int, int]] = set()
        self.arrays: dict[str, Tensor] = {}
        self.numbers: dict[str, Any] = {}
        self.thetas.copy_(self.centre().expand_as(self.thetas))

    # Evaluating the members.

    def enter(self, i: int) -> None:
        """Make member ``i`` the model."""
        self.show(self.member_views[i])
        for p in self.params:
            p.grad = None

    def leave(self) -> None:
        """Give the model its own tensors back."""
        self.show(self.homes)

    def collect(self, i: int) -> int:
        """Move the model's gradients to member ``i``'s row; how many there were."""
        rows, grads = [], []
        for k, (p, row) in enumerate(zip(self.params, self.grad_views[i], strict=True)):
            if p.grad is None:
                self.unused.add((i, k))
                row.zero_()
                continue
            self.unused.discard((i, k))
            rows.append(row)
            grads.append(strided(p.grad, p))
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

    # The members about the centre.

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
            state[p]["members"] = torch.stack([views[k] for views in self.member_views])
            for key, array in self.arrays.items():
                state[p][DIRECTION + key] = array[..., cut].clone()

    def restore(self, state: dict[Tensor, dict[str, Any]]) -> bool:
        """Take it back; False when these parameters have no members in the state."""
        saved = [state.get(p, {}) for p in self.params]
        if not all("members" in entry for entry in saved):
            return False
        for k, entry in enumerate(saved):
            self._check_saved(k, entry["members"])
            for i, views in enumerate(self.member_views):
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
