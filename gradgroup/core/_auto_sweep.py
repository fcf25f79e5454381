"""The sweep of ``AutoGrouping`` compiled by Numba: one pass through memory.

The idea. ``gradgroup.core._auto.sweep`` says what is computed; array by array it would go through
memory some twenty times. Here it is one pass, in two loops over as many columns as stay in a core's
first cache. In single precision the gradient before is kept in bfloat16: it is only ever compared
with a gradient of another batch, and half a row less is read and written.

Conventions. As in ``_sweeps.py``: contiguous NumPy memory, all of float32 or all of float64, handed
over as places; sums over blocks of columns are float64.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from gradgroup.core._auto import BETA, Order, Sums
from gradgroup.core._sweeps import Place, parts_of
from gradgroup.core._threads import Loop, matrix, number, place, shares, teams

__all__ = ["Sweep", "teams"]

Array: TypeAlias = np.ndarray[Any, Any]

BLOCK = 1_024
MOST_PARTS = 256
# A sweep does about as much for a column as a product of the paper's solve does for four numbers.
WORK = 4

# Where a loop finds what it is told: an order, and 1 − β, which must not be compiled in, because
# code that Numba has kept would not notice that it was changed.
STEP, MIX, SHARE, FLOOR, SHRINK, UNIT, _, LOOK, NEAR = range(len(Order._fields) + 1)
# And where it leaves the sums.
TRACE, PUSH, VERDICT, REACH = range(len(Sums._fields))

# NaN and Inf must stay what they are; the order of a sum is free.
_compiled = partial(njit, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


class Sweep:
    """Sweeps over one trail.

    Parameters
    ----------
    rows : array of shape (3, d)
        Stand, noise and start; they are to stay where they are in memory.
    last : array of shape (1, d)
        The gradient before: as float64, or the bits of bfloat16 in uint16.
    """

    def __init__(self, rows: Array, last: Array) -> None:
        self._loops = _loops(rows.dtype.type)
        self._told = np.zeros((1, NEAR + 1))
        self._told[0, NEAR] = 1.0 - BETA
        self._found = np.zeros((MOST_PARTS, len(Sums._fields)))
        self._places = *place(rows), *place(last)
        self._small = *place(self._told), *place(self._found)

    def squares(self, grad: Place, unit: float, threads: int) -> float:
        """``Σ (unit·g)²``; not finite where a gradient is not, nor where it is too large."""
        parts = parts_of(grad[2], min(threads, MOST_PARTS))
        self._told[0, UNIT] = unit
        self._found[:parts] = 0.0
        self._loops.squares.run(parts, *grad, *self._small)
        return float(self._found[:parts, 0].sum())

    def sweep(
        self, start: int, average: Place, grad: Place, order: Order, threads: int
    ) -> list[float]:
        """One step in place, for the columns from ``start`` on; the sums, as in ``Sums``."""
        parts = parts_of(WORK * grad[2], min(threads, MOST_PARTS))
        self._told[0, :NEAR] = order
        self._found[:parts] = 0.0
        arrays = *self._places, *average, *grad, *self._small
        self._loops.sweep.run(parts, *arrays, start, 0, 0)
        found: list[float] = self._found[:parts].sum(axis=0).tolist()
        return found


class Loops(NamedTuple):
    """Both loops, for one kind of numbers."""

    squares: Loop
    sweep: Loop


@lru_cache(maxsize=2)
def _loops(dtype: type) -> Loops:
    listen, kept = (_listen_32, np.uint16) if dtype is np.float32 else (_listen_64, np.float64)

    def squares(task):
        grad, told = matrix(task, 0, dtype)[0], matrix(task, 1, np.float64)[0]
        found = matrix(task, 2, np.float64)
        for part, first, last in shares(task, grad.shape[0]):
            for low in range(first, last, BLOCK):
                found[part, 0] += _squares(grad[low : min(low + BLOCK, last)], dtype(told[UNIT]))

    def sweep(task):
        rows, before = matrix(task, 0, dtype), matrix(task, 1, kept)[0]
        average, grad = matrix(task, 2, dtype)[0], matrix(task, 3, dtype)[0]
        told, found = matrix(task, 4, np.float64)[0], matrix(task, 5, np.float64)
        start = number(task, 6)
        roots: Any = np.empty(BLOCK, dtype)
        for part, first, last in shares(task, grad.shape[0]):
            for low in range(first, last, BLOCK):
                high = min(low + BLOCK, last)
                a, b = start + low, start + high
                g, root, sums = grad[low:high], roots[: high - low], found[part]
                listen(g, before[a:b], rows[1, a:b], root, told, sums)
                # The noise stands in for the start where nobody looks: it is in the cache.
                origin = rows[2, a:b] if told[LOOK] else rows[1, a:b]
                _walk(g, root, average[low:high], rows[0, a:b], origin, told, sums)

    return Loops(Loop(squares), Loop(sweep))


@_compiled()
def _squares(grad, unit):
    total = grad.dtype.type(0)
    for k in range(grad.shape[0]):
        total += (unit * grad[k]) * (unit * grad[k])
    return total


@_compiled()
def _widened(bits):
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@_compiled()
def _narrowed(value):
    """To bfloat16, rounded to the nearest even, as PyTorch does."""
    bits = np.float32(value).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@_compiled()
def _as_it_is(value):
    return value


def _listener(widened: Any, narrowed: Any) -> Any:
    """What the gradient says of the noise; it is left in ``last``."""

    @_compiled()
    def listen(grad, last, noise, root, told, found):
        kind = grad.dtype.type
        mix, floor, unit, half = kind(told[MIX]), kind(told[FLOOR]), kind(told[UNIT]), kind(0.5)
        trace = kind(0)
        for k in range(grad.shape[0]):
            g = grad[k] * unit
            change = g - widened(last[k])
            v = noise[k] + mix * (half * change * change - noise[k])
            r = np.sqrt(v) + floor
            trace += r
            noise[k], last[k], root[k] = v, narrowed(g), r
        found[TRACE] += trace

    return listen


_listen_32 = _listener(_widened, _narrowed)
_listen_64 = _listener(_as_it_is, _as_it_is)


@_compiled()
def _walk(grad, root, average, stand, start, told, found):
    """The step.

    It is a loop of its own because no more than five arrays can be told apart by the checks that a
    compiler makes before it dares to vectorise.
    """
    kind = grad.dtype.type
    step, share, shrink = kind(told[STEP]), kind(told[SHARE]), kind(told[SHRINK])
    unit, near, far = kind(told[UNIT]), kind(told[NEAR]), kind(1.0 / told[NEAR])
    push = verdict = reach = kind(0)
    for k in range(grad.shape[0]):
        x, p, origin, g = average[k], stand[k], start[k], grad[k] * unit
        direction = g / root[k]
        z = shrink * (x + far * (p - x) - step * direction)
        verdict += g * (origin - x)
        push += g * direction
        x += share * (z - x)
        reach += root[k] * (x - origin) * (x - origin)
        average[k], stand[k] = x, x + near * (z - x)
    found[PUSH] += push
    found[VERDICT] += verdict
    found[REACH] += reach
