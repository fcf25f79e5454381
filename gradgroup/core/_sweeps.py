"""The two passes over a group's numbers, compiled by Numba: the same results, sooner.

The idea. A step reads members and gradients once to multiply them with each other, and once more
to move the members and to average them where they arrive. An array library needs several
operations for either, each of which goes through memory. Here each pass is one loop over blocks of
columns that stay in a core's own cache, and every thread takes its part of the columns. Either
pass has a plain twin that says what it computes: ``gram(rows[n:], rows)`` for the products,
``thetas += steps[:, None] * along; point[:] = weights @ thetas`` for the move.

Importing this module needs Numba, which is an extra (``pip install gradgroup[fast]``). Where it
is missing, callers use the plain twins.

Conventions. Contiguous NumPy arrays, all of float32 or all of float64; sums over blocks of columns
are float64. The same number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from gradgroup.core._threads import Loop, matrix, number, place, shares, teams

__all__ = ["Sweeps", "teams"]

Array: TypeAlias = np.ndarray[Any, Any]
Place: TypeAlias = tuple[int, int, int]

# Columns at a time: 16 rows of them in float32 are half of a common second-level cache.
BLOCK = 8_192
# Rows that are multiplied with as many others at a time: their 16 sums fit the registers.
TILE = 4
# So many numbers are worth a team of threads, which takes some microseconds to start.
WORTH_A_TEAM = 100_000

# The order of a sum is free, so that it can be vectorised; NaN and Inf stay what they are.
_compiled = partial(njit, fastmath={"reassoc", "contract", "nsz"})


class Sweeps:
    """Both passes over one group of N members.

    Parameters
    ----------
    rows : array of shape (2N, d)
        The members, and their gradients below; they are to stay where they are in memory.
    """

    def __init__(self, rows: Array) -> None:
        self._members, self._columns = len(rows) // 2, rows.shape[1]
        self._loops = _loops(rows.dtype.type)
        self._small = np.zeros((2, self._members), rows.dtype)
        self._found = np.zeros((0, 0, 0))
        self._rows, self._steps = place(rows), place(self._small)

    def products(self, threads: int) -> Array:
        """Products of the gradients with all rows: (N, 2N) float64."""
        n = self._members
        parts = parts_of(2 * n * self._columns, threads)
        if len(self._found) != parts:
            height = -(-n // TILE) * TILE
            self._found = np.zeros((parts, height, n + height + TILE))
            self._sums = place(self._found.reshape(parts * height, -1))
        self._loops.multiply.run(parts, *self._rows, *self._sums)
        total: Array = self._found.sum(axis=0)[:n, : 2 * n]
        return total

    def move(
        self,
        steps: Sequence[float],
        weights: Sequence[float],
        points: Iterable[tuple[int, Place]],
        along: Place,
        threads: int,
    ) -> None:
        """Move the members, ``θᵢ ← θᵢ + ηᵢ pᵢ``, and write their weighted sum to the points.

        A point has the columns of the rows from the number before it on; only those of a point
        are moved. What they are moved along is (N, d).
        """
        self._small[:] = steps, weights
        for start, point in points:
            parts = parts_of(2 * self._members * point[2], threads)
            arrays = *self._rows, *along, *self._steps, *point
            self._loops.move.run(parts, *arrays, start, 0, 0)


def parts_of(numbers: int, threads: int) -> int:
    return threads if numbers >= WORTH_A_TEAM else 1


class Loops(NamedTuple):
    """Both loops, for one kind of numbers."""

    multiply: Loop
    move: Loop


@lru_cache(maxsize=2)
def _loops(dtype: type) -> Loops:
    def multiply(task):
        rows, found = matrix(task, 0, dtype), matrix(task, 1, np.float64)
        height = found.shape[0] // task[1]
        for part, first, last in shares(task, rows.shape[1]):
            _multiply(rows, first, last, found[part * height : (part + 1) * height])

    def move(task):
        rows, along = matrix(task, 0, dtype), matrix(task, 1, dtype)
        steps, weights = matrix(task, 2, dtype)
        point, start = matrix(task, 3, dtype)[0], number(task, 4)
        for _, first, last in shares(task, point.shape[0]):
            _move(rows, along, steps, weights, point, start, first, last)

    return Loops(Loop(multiply), Loop(move))


@_compiled()
def _multiply(rows, first, last, out):
    n = rows.shape[0] // 2
    out[:] = 0
    for low in range(first, last, BLOCK):
        for i in range(0, n, TILE):
            for j in range(0, min(n + i + TILE, 2 * n), TILE):
                _tile(rows, n + i, j, low, min(low + BLOCK, last), out[i : i + TILE, j : j + TILE])
    # Of the gradients with each other, only the lower triangle is computed for sure.
    for i in range(n):
        for j in range(i):
            out[j, n + i] = out[i, n + j]


@_compiled()
def _tile(rows, i, j, low, high, out):
    """Add the products of four rows from ``i`` with four from ``j``; past the end, the last again.

    The sums have sixteen names because an array of them would not be kept in registers.
    """
    end = rows.shape[0] - 1
    a, b = rows[min(i, end), low:high], rows[min(i + 1, end), low:high]
    c, d = rows[min(i + 2, end), low:high], rows[min(i + 3, end), low:high]
    w, x = rows[min(j, end), low:high], rows[min(j + 1, end), low:high]
    y, z = rows[min(j + 2, end), low:high], rows[min(j + 3, end), low:high]
    aw = ax = ay = az = bw = bx = by = bz = rows.dtype.type(0)
    cw = cx = cy = cz = dw = dx = dy = dz = rows.dtype.type(0)
    for k in range(high - low):
        aw, ax, ay, az = aw + a[k] * w[k], ax + a[k] * x[k], ay + a[k] * y[k], az + a[k] * z[k]
        bw, bx, by, bz = bw + b[k] * w[k], bx + b[k] * x[k], by + b[k] * y[k], bz + b[k] * z[k]
        cw, cx, cy, cz = cw + c[k] * w[k], cx + c[k] * x[k], cy + c[k] * y[k], cz + c[k] * z[k]
        dw, dx, dy, dz = dw + d[k] * w[k], dx + d[k] * x[k], dy + d[k] * y[k], dz + d[k] * z[k]
    sums = ((aw, ax, ay, az), (bw, bx, by, bz), (cw, cx, cy, cz), (dw, dx, dy, dz))
    for row in range(TILE):
        for column in range(TILE):
            out[row, column] += sums[row][column]


@_compiled()
def _move(rows, along, steps, weights, point, start, first, last):
    for low in range(first, last, BLOCK):
        high = min(low + BLOCK, last)
        mean = point[low:high]
        mean[:] = 0
        for i in range(along.shape[0]):
            theta, p = rows[i, start + low : start + high], along[i, start + low : start + high]
            step, weight = steps[i], weights[i]
            for k in range(high - low):
                theta[k] += step * p[k]
                mean[k] += weight * theta[k]
