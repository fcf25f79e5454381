"""The sweep of ``AutoGrouping`` compiled by Numba: one pass through memory.

The idea. ``gradgroup.core._auto.sweep`` says what is computed; array by array it would go through
memory some twenty times. Here it is one loop, which reads six arrays and writes four.

Conventions. As in ``_sweeps.py``: contiguous NumPy memory, all of float32 or all of float64, handed
over as places; sums over blocks of columns are float64.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numba import njit

from gradgroup.core._auto import BETA, Order, Sums
from gradgroup.core._sweeps import BLOCK, Place, parts_of
from gradgroup.core._threads import Loop, matrix, number, place, shares, teams

__all__ = ["squares", "sweep", "teams"]

# NaN and Inf must stay what they are; the order of a sum is free.
_compiled = partial(njit, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


def squares(grad: Place, unit: float, dtype: type, threads: int) -> float:
    """``Σ (unit·g)²``; neither finite where a gradient is not, nor where it is too large."""
    parts = parts_of(grad[2], threads)
    found = np.zeros((parts, 1))
    _loops(dtype).squares.run(parts, *grad, *place(np.array([[unit]])), *place(found))
    return float(found.sum())


def sweep(
    rows: Place, start: int, average: Place, grad: Place, order: Order, dtype: type, threads: int
) -> Sums:
    """One step in place, for the columns of ``rows`` from ``start`` on.

    The rows are stand, noise, start and last; average and gradient are (1, columns).
    """
    parts = parts_of(8 * grad[2], threads)
    found = np.zeros((parts, len(Sums._fields)))
    told = np.array([order])
    arrays = *rows, *average, *grad, *place(told), *place(found)
    _loops(dtype).sweep.run(parts, *arrays, start, 0, 0)
    return Sums(*found.sum(axis=0).tolist())


class Loops(NamedTuple):
    """Both loops, for one kind of numbers."""

    squares: Loop
    sweep: Loop


@lru_cache(maxsize=2)
def _loops(dtype: type) -> Loops:
    def squares(task):
        grad, unit = matrix(task, 0, dtype)[0], matrix(task, 1, np.float64)[0, 0]
        found = matrix(task, 2, np.float64)
        for part, first, last in shares(task, grad.shape[0]):
            for low in range(first, last, BLOCK):
                found[part, 0] += _squares(grad[low : min(low + BLOCK, last)], dtype(unit))

    def sweep(task):
        rows, average = matrix(task, 0, dtype), matrix(task, 1, dtype)[0]
        grad, told = matrix(task, 2, dtype)[0], matrix(task, 3, np.float64)[0]
        found, start = matrix(task, 4, np.float64), number(task, 5)
        for part, first, last in shares(task, grad.shape[0]):
            for low in range(first, last, BLOCK):
                high = min(low + BLOCK, last)
                here = rows[:, start + low : start + high]
                _sweep(here, average[low:high], grad[low:high], told, found[part])

    return Loops(Loop(squares), Loop(sweep))


@_compiled()
def _squares(grad, unit):
    total = grad.dtype.type(0)
    for k in range(grad.shape[0]):
        total += (unit * grad[k]) * (unit * grad[k])
    return total


@_compiled()
def _sweep(rows, average, grad, told, found):
    kind = grad.dtype.type
    step, mix, share, floor = kind(told[0]), kind(told[1]), kind(told[2]), kind(told[3])
    decay, unit = kind(told[4]), kind(told[5])
    half, near, far = kind(0.5), kind(1.0 - BETA), kind(1.0 / (1.0 - BETA))
    stand, noise, start, last = rows[0], rows[1], rows[2], rows[3]
    trace = push = verdict = reach = kind(0)
    for k in range(grad.shape[0]):
        g = grad[k] * unit
        change = g - last[k]
        v = noise[k] + mix * (half * change * change - noise[k])
        root = np.sqrt(v) + floor
        x, p, origin = average[k], stand[k], start[k]
        z = x + far * (p - x)
        verdict += g * (origin - p)
        direction = g / root
        z -= step * (direction + decay * p)
        x += share * (z - x)
        away = x - origin
        trace += root
        push += g * direction
        reach += root * away * away
        average[k], stand[k] = x, x + near * (z - x)
        noise[k], last[k] = v, g
    found[0] += trace
    found[1] += push
    found[2] += verdict
    found[3] += reach
