"""L-BFGS for a stack of runs: PyTorch's, with its defaults.

The idea. PyTorch's L-BFGS makes twenty iterations on every batch, each of which goes through a
history of a hundred pairs of vectors twice. That is so much more than a gradient costs that it
decides how long a sweep takes. Here the first iteration on a batch is made on the vectors, and is
often the last, because the run has come to a standstill. The others are made in the coordinates of
the batch (``_lbfgs_loop.py``), for which vectors are gone through in two products of matrices: once
for their views, once for all moves.

It leaves out one of PyTorch's five tests of convergence, that of the length of a move, which is not
known there; where it would hold, that of the change of the loss does.

Conventions. As in ``_stack.py``. The history is a ring: a new pair takes the place of the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradgroup.experiments.engine._lbfgs_loop import (
    HISTORY,
    ITERATIONS,
    SMALLEST_CHANGE,
    SMALLEST_CURVATURE,
    SMALLEST_GRADIENT,
    iterate,
    residuals,
    weights_of,
)
from gradgroup.experiments.engine._softmax import Array

# Where vectors are kept: s by slot, the last move, y by slot, the gradient before that move.
LAST, BEFORE = HISTORY, 2 * HISTORY + 1
KEPT = 2 * HISTORY + 2
S, Y = slice(HISTORY), slice(HISTORY + 1, BEFORE)
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
        self.rate, self.gamma, self.started = rate, 1.0, False
        # Behind what is kept are the gradients of a step.
        self.vectors = np.zeros((KEPT + ITERATIONS, weights.size), dtype)
        self.moves = np.zeros((ITERATIONS, weights.size), dtype)
        self.slots = np.zeros(0, np.int64)
        self.pages: list[Page] = []
        # sᵀy, yᵀy, sᵀg, yᵀg from the oldest pair on.
        self.products = *np.zeros((2, room, room)), *np.zeros((2, room))

    def step(self, weights: Array, batch: Batch) -> tuple[float, int]:
        """One step in place; the loss before it, and how many gradients it took."""
        x, logits = batch.x, weights @ batch.x.T
        log = np.empty((ITERATIONS, *logits.shape), x.dtype)
        loss = residuals(logits, batch.labels, log[0])
        gradient = (log[0] @ x).ravel()
        if np.abs(gradient).max() <= SMALLEST_GRADIENT:
            return loss, 1
        if self._move_first(gradient, batch.number, log[0]) > -SMALLEST_CHANGE:
            return loss, 1
        move = self.vectors[LAST].reshape(weights.shape)
        weights += move
        logits += move @ x.T
        after = residuals(logits, batch.labels, log[1])
        if np.abs(log[1] @ x).max() <= SMALLEST_GRADIENT or is_same(loss, after, x.dtype):
            return loss, 2
        return loss, self._go_on(weights, batch, logits, log, loss)

    # The first iteration, on the vectors.

    def _move_first(self, gradient: Array, number: int, residual: Array) -> float:
        """Work the first move out; the slope along it, per unit of the rate."""
        rate, joined = self.rate, []
        if self.started:
            joined = self._join_across(gradient)
        else:
            self.started = True
            rate *= min(1.0, 1.0 / float(np.abs(gradient).sum()))
        direction = self._direction(gradient)
        self.vectors[LAST], self.vectors[BEFORE] = rate * direction, gradient
        self.pages.append(Page(number, np.stack([residual, residual]), joined))
        self._forget(max(len(self.slots) - HISTORY, 0))
        return float(gradient @ direction)

    def _join_across(self, gradient: Array) -> list[int]:
        """The pair of the last move and of the gradients before and after it, on two batches."""
        sy, yy, sg, yg = self.products
        known, s, y = len(self.slots), self.vectors[LAST], gradient - self.vectors[BEFORE]
        new_sg = (self.vectors[S] @ gradient)[self.slots].astype(np.float64)
        new_yg = (self.vectors[Y] @ gradient)[self.slots].astype(np.float64)
        of_s, of_y = float(s @ y), float(y @ y)
        if not of_s > SMALLEST_CURVATURE:
            sg[:known], yg[:known] = new_sg, new_yg
            return []
        sy[:known, known] = new_sg - sg[:known]
        yy[:known, known] = yy[known, :known] = new_yg - yg[:known]
        sy[known, known], yy[known, known] = of_s, of_y
        sg[: known + 1], yg[: known + 1] = [*new_sg, s @ gradient], [*new_yg, y @ gradient]
        self.gamma = of_s / of_y
        slot = known if known < HISTORY else self.slots[0]
        self.vectors[slot], self.vectors[Y][slot] = s, y
        self.slots = np.append(self.slots, slot)
        return [0]

    def _direction(self, gradient: Array) -> Array:
        """−H g, from the pairs there are."""
        high = len(self.slots)
        low = max(high - HISTORY, 0)
        alpha, moves = np.zeros((2, high))
        weights_of(*self.products, self.gamma, low, high, alpha, moves)
        of_s, of_y = np.zeros((2, HISTORY), gradient.dtype)
        of_s[self.slots[low:]], of_y[self.slots[low:]] = moves[low:], -self.gamma * alpha[low:]
        found: Array = of_s @ self.vectors[S] + of_y @ self.vectors[Y]
        found -= gradient.dtype.type(self.gamma) * gradient
        return found

    # The others, on views.

    def _go_on(self, weights: Array, batch: Batch, logits: Array, log: Array, loss: float) -> int:
        """All further iterations; how many gradients the step took."""
        table = np.zeros((ITERATIONS, KEPT + ITERATIONS))
        joined = np.zeros(ITERATIONS, np.int64)
        size, x = logits.size, batch.x
        memory = self._views(slice(LAST + 1), x, size), self._views_of_changes(batch, size)
        samples = batch.labels, x, batch.products(batch.number)
        self.gamma, logged, made, pairs, calls = iterate(
            logits,
            samples,
            self.slots,
            (*memory, *self.products),
            self.gamma,
            self.rate,
            loss,
            (log, table, joined),
        )
        self._move(x, log[1:logged], table[1:logged].astype(x.dtype))
        weights += self.moves[1:made].sum(axis=0).reshape(weights.shape)
        self._remember(joined[:pairs].tolist(), log[:logged])
        return int(calls)

    def _views(self, rows: slice, x: Array, size: int) -> Array:
        """Views of vectors by slot, from the oldest pair's on; then that of the last row."""
        views = (self.vectors[rows].reshape(-1, x.shape[1]) @ x.T).reshape(-1, size)
        found = np.empty((HISTORY + ITERATIONS + 1, size), x.dtype)
        found[: len(self.slots) + 1] = views[[*self.slots, -1]]
        return found

    def _views_of_changes(self, batch: Batch, size: int) -> Array:
        """Views of all y, with room for more.

        A y is samples times residuals, so that the products of the batches' samples are enough,
        unless it is too many batches that the history goes back to.
        """
        if len(self.pages) > MOST_PAGES:
            return self._views(slice(LAST + 1, KEPT), batch.x, size)
        found = np.empty((HISTORY + ITERATIONS + 1, size), batch.x.dtype)
        before, known = np.zeros(size, found.dtype), 0
        for page in self.pages:
            rows = page.rows.reshape(-1, len(batch.x))
            views = (rows @ batch.products(page.number)).reshape(-1, size)
            views[0] -= before
            found[known : known + len(page.joined)] = views[page.joined]
            before, known = views[-1], known + len(page.joined)
        return found

    def _move(self, x: Array, log: Array, table: Array) -> None:
        """Work the gradients and the moves out, from the second iteration on."""
        logged = len(log) + 1
        gradients = self.vectors[KEPT + 1 : KEPT + logged].reshape(-1, x.shape[1])
        np.matmul(log.reshape(-1, len(x)), x, out=gradients)
        known = self.vectors[: KEPT + logged]
        np.matmul(table[:, : KEPT + logged], known, out=self.moves[1:logged])

    def _remember(self, joined: list[int], log: Array) -> None:
        """Put this batch's pairs where the oldest were."""
        number, _, across = self.pages[-1]
        rows = np.concatenate([log[:1], np.diff(log, axis=0), log[-1:]])
        self.pages[-1] = Page(number, rows, across + joined)
        surplus = max(len(self.slots) + len(joined) - HISTORY, 0)
        free = [*range(len(self.slots), HISTORY), *self.slots[:surplus].tolist()][: len(joined)]
        for slot, at in zip(free, joined, strict=True):
            before = self.vectors[KEPT + at - 1] if at > 1 else self.vectors[BEFORE]
            self.vectors[slot] = self.moves[at - 1] if at > 1 else self.vectors[LAST]
            np.subtract(self.vectors[KEPT + at], before, out=self.vectors[Y][slot])
        if len(log) > 1:
            self.vectors[LAST] = self.moves[len(log) - 1]
            self.vectors[BEFORE] = self.vectors[KEPT + len(log) - 1]
        self.slots = np.concatenate([self.slots, np.array(free, np.int64)])
        self._forget(surplus)

    def _forget(self, surplus: int) -> None:
        """Drop the oldest pairs, and the pages that nothing refers to any more."""
        self.slots = self.slots[surplus:]
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


def is_same(loss: float, other: float, dtype: np.dtype[np.floating]) -> bool:
    """PyTorch's test of the change of the loss, which it knows in the precision of the weights."""
    return bool(abs(dtype.type(loss) - dtype.type(other)) < SMALLEST_CHANGE)


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

    def run(self, weights: Array, x: Array, labels: Array) -> tuple[Array, Array]:
        """Some steps in place: losses before each, and gradients taken; (steps, groups, runs).

        Each run makes all of them before the next one begins, so that its history, which is too
        large for a core's own cache, stays at least in the one that cores share.
        """
        losses = np.empty((len(x), *weights.shape[:2]))
        calls = np.empty(losses.shape, np.int64)
        for group, histories in enumerate(self._histories):
            batches = self._batches(group, x[:, group], labels[:, group])
            for run, history in enumerate(histories):
                for step, batch in enumerate(batches):
                    found = history.step(weights[group, run], batch)
                    losses[step, group, run], calls[step, group, run] = found
            self._forget(group)
        self._steps += len(x)
        return losses, calls

    def _batches(self, group: int, x: Array, labels: Array) -> list[Batch]:
        past = self._past[group]
        numbers = range(self._steps, self._steps + len(x))
        return [Batch(*told, past) for told in zip(numbers, x, labels, strict=True)]

    def _forget(self, group: int) -> None:
        """Drop the samples that no history refers to."""
        past = self._past[group]
        used = {page.number for history in self._histories[group] for page in history.pages}
        for number in [k for k in past if k not in used]:
            del past[number]

    def keep(self, runs: Array) -> None:
        """Go on with these runs alone."""
        self._histories = [[histories[k] for k in runs] for histories in self._histories]
