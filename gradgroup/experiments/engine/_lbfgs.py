"""L-BFGS for a stack of runs: PyTorch's, with its defaults.

The idea. PyTorch's L-BFGS makes twenty iterations on every batch, each of which goes through a
history of a hundred pairs of vectors twice. That is so much more than a gradient costs that it
decides how long a sweep takes. Here the iterations are made in the coordinates of the batch
(``_lbfgs_loop.py``). The vectors are gone through three times a step, in products of matrices: once
for their views, once for the new gradients, once for the moves.

It leaves out one of PyTorch's five tests of convergence, that of the length of a move, which is not
known there; where it would hold, that of the change of the loss does.

Conventions. As in ``_stack.py``. The history is a ring: a new pair takes the place of the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradgroup.experiments.engine._lbfgs_loop import HISTORY, ITERATIONS, STARTED, iterate
from gradgroup.experiments.engine._softmax import Array

# Where vectors are kept: s by slot, the last move, y by slot, the gradient before that move.
LAST, BEFORE = HISTORY, 2 * HISTORY + 1
KEPT = 2 * HISTORY + 2
# From about so many batches on, their products take longer than those with the vectors themselves.
MOST_PAGES = 12


class Page(NamedTuple):
    """What is kept of a step: y of its pairs, as residuals on its batch."""

    number: int
    """Of the batch."""
    rows: Array
    """(gradients + 1, outputs, samples): the first residual, the changes since, the last one."""
    joined: list[int]
    """Which of them are pairs that are still remembered. Where the first is one, its y began with
    the last residual of the page before."""


class History:
    """What one run remembers.

    Parameters
    ----------
    weights : array of shape (outputs, inputs)
        Where the run starts.
    rate : float
        Its learning rate.
    """

    def __init__(self, weights: Array, rate: float) -> None:
        dtype, room = weights.dtype, HISTORY + ITERATIONS + 1
        self.rate = rate
        # What moves are made of: all s, the last move, all y, the gradient before that move; then
        # the gradients of this step.
        self.vectors = np.zeros((KEPT + ITERATIONS, weights.size), dtype)
        self.moves = np.zeros((ITERATIONS, weights.size), dtype)
        self.slots = np.zeros(0, np.int64)
        self.pages: list[Page] = []
        # sᵀy, yᵀy, sᵀg, yᵀg from the oldest pair on.
        self.products = *np.zeros((2, room, room)), *np.zeros((2, room))
        self.state = np.zeros(STARTED + 1)

    def step(self, weights: Array, batch: Batch) -> tuple[float, int]:
        """One step in place; the loss before it, and how many gradients it took."""
        x = batch.x
        logits = weights @ x.T
        log = np.empty((ITERATIONS, *logits.shape), x.dtype)
        table = np.zeros((ITERATIONS, KEPT + ITERATIONS))
        joined = np.zeros(ITERATIONS, np.int64)
        views_y, before = self._views_of_changes(batch, logits.size)
        memory = self._views_of_moves(x, logits.size), views_y, *self.products
        samples = batch.labels, x, batch.products(batch.number)
        record = log, table, joined
        loss, logged, made, pairs, calls = iterate(
            logits, samples, (self.slots, before), memory, self.state, self.rate, record
        )
        if logged:
            self._move(x, log[:logged], table[:logged].astype(x.dtype))
            weights += self.moves[:made].sum(axis=0).reshape(weights.shape)
            self._remember(joined[:pairs].tolist(), batch.number, log[:logged])
        return loss, calls

    def _views_of_moves(self, x: Array, size: int) -> Array:
        """Views of all s from the oldest to the newest and of the last move, with room for more."""
        return self._views(slice(LAST + 1), x, size)

    def _views(self, rows: slice, x: Array, size: int) -> Array:
        """Views of vectors by slot, from the oldest pair's on; then that of the last row."""
        views = (self.vectors[rows].reshape(-1, x.shape[1]) @ x.T).reshape(-1, size)
        found = np.empty((HISTORY + ITERATIONS + 1, size), x.dtype)
        found[: len(self.slots) + 1] = views[[*self.slots, -1]]
        return found

    def _views_of_changes(self, batch: Batch, size: int) -> tuple[Array, Array]:
        """The same of all y, and the view of the gradient before the last move.

        A y is samples times residuals, so that the products of the batches' samples are enough,
        unless it is too many batches that the history goes back to.
        """
        if len(self.pages) > MOST_PAGES:
            views = self._views(slice(LAST + 1, KEPT), batch.x, size)
            return views, views[len(self.slots)].copy()
        found = np.empty((HISTORY + ITERATIONS + 1, size), batch.x.dtype)
        before, known = np.zeros(size, found.dtype), 0
        for page in self.pages:
            views = (page.rows.reshape(-1, len(batch.x)) @ batch.products(page.number)).reshape(
                -1, size
            )
            views[0] -= before
            found[known : known + len(page.joined)] = views[page.joined]
            before, known = views[-1], known + len(page.joined)
        return found, before

    def _move(self, x: Array, log: Array, table: Array) -> None:
        """Work the gradients and the moves out."""
        logged, all_of_them = len(log), KEPT + len(log)
        gradients = self.vectors[KEPT:all_of_them].reshape(-1, x.shape[1])
        np.matmul(log.reshape(-1, len(x)), x, out=gradients)
        np.matmul(table[:, :all_of_them], self.vectors[:all_of_them], out=self.moves[:logged])

    def _remember(self, joined: list[int], number: int, log: Array) -> None:
        """Put this step's pairs where the oldest were."""
        logged = len(log)
        self.pages.append(
            Page(number, np.concatenate([log[:1], np.diff(log, axis=0), log[-1:]]), joined)
        )
        surplus = max(len(self.slots) + len(joined) - HISTORY, 0)
        free = [*range(len(self.slots), HISTORY), *self.slots[:surplus].tolist()][: len(joined)]
        for slot, at in zip(free, joined, strict=True):
            before = self.vectors[KEPT + at - 1] if at else self.vectors[BEFORE]
            self.vectors[slot] = self.moves[at - 1] if at else self.vectors[LAST]
            np.subtract(self.vectors[KEPT + at], before, out=self.vectors[HISTORY + 1 + slot])
        self.vectors[LAST] = self.moves[logged - 1]
        self.vectors[BEFORE] = self.vectors[KEPT + logged - 1]
        self.slots = np.concatenate([self.slots[surplus:], np.array(free, np.int64)])
        self._forget(surplus)

    def _forget(self, surplus: int) -> None:
        """Drop the products of the oldest pairs, and the pages that nothing refers to any more."""
        if surplus:
            for known in self.products:
                shifted = (slice(surplus, None),) * known.ndim
                known[(slice(-surplus),) * known.ndim] = known[shifted].copy()
        for page in self.pages:
            dropped = page.joined[:surplus]
            del page.joined[:surplus]
            surplus -= len(dropped)
        used = [page.joined[:1] == [0] for page in self.pages[1:]]
        pairs = zip(self.pages, [*used, True], strict=True)
        self.pages = [page for page, is_used in pairs if page.joined or is_used]


class Batch:
    """The samples of a step, and those of past steps as far as a history refers to them.

    Parameters
    ----------
    number : int
        Of the step.
    x : array of shape (samples, inputs)
    labels : array of shape (samples,)
    past : mapping of int to array
        Samples of past steps by number; these are added.
    """

    def __init__(self, number: int, x: Array, labels: Array, past: dict[int, Array]) -> None:
        self.number, self.x, self.labels = number, x, labels
        self._past = past
        past[number] = x
        self._products: dict[int, Array] = {}

    def products(self, number: int) -> Array:
        """Products of another step's samples with these, worked out once for all runs."""
        if number not in self._products:
            self._products[number] = self._past[number] @ self.x.T
        return self._products[number]


class LBFGS:
    """L-BFGS at work on a stack.

    Parameters
    ----------
    rates : sequence of float
        The runs' learning rates.
    weights : array of shape (groups, runs, outputs, inputs)
        Where the runs start.
    """

    def __init__(self, rates: Sequence[float], weights: Array) -> None:
        self._steps = 0
        self._past: list[dict[int, Array]] = [{} for _ in weights]
        self._histories = [
            [History(start, rate) for start, rate in zip(group, rates, strict=True)]
            for group in weights
        ]

    def step(self, weights: Array, x: Array, labels: Array) -> tuple[Array, Array]:
        """One step of all runs, in place: losses, and gradients taken, both (groups, runs)."""
        losses, calls = np.empty(weights.shape[:2]), np.empty(weights.shape[:2], np.int64)
        for group, histories in enumerate(self._histories):
            batch = Batch(self._steps, x[group], labels[group], self._past[group])
            for run, history in enumerate(histories):
                losses[group, run], calls[group, run] = history.step(weights[group, run], batch)
            used = {page.number for history in histories for page in history.pages}
            for number in [k for k in self._past[group] if k not in used]:
                del self._past[group][number]
        self._steps += 1
        return losses, calls

    def keep(self, runs: Array) -> None:
        """Go on with these runs alone."""
        self._histories = [[histories[k] for k in runs] for histories in self._histories]
