"""Compiled loops on the threads that the process has already.

The idea. PyTorch computes on a team of OpenMP threads, which go on spinning for milliseconds after
each piece of work. Threads of our own would have to share the cores with them, and gain nothing.
So a compiled loop is handed to that very team, through ``GOMP_parallel``, the function that
compilers call for a parallel region: it is there wherever GNU's or LLVM's OpenMP is loaded, as by
PyTorch on Linux. Where it is not, one thread does all.

Conventions. A loop gets its *task*, an array of integers: how many parts have been taken, how many
there are, and three numbers for each argument: the address and the shape of an array, or what
else the loop wants to know. Every thread of the team calls the loop, which takes parts until none
is left (:func:`shares`). Which thread gets which part is left to chance: a part must write where
no other does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_intrinsic: Any = intrinsic  # whose result, to type checkers, takes the typing context as well


class Loop:
    """A function of a task, compiled."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._compiled = _compile(function)
        self.address: int = self._compiled.address
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address)

    def run(self, parts: int, *arguments: int) -> None:
        """Do all parts: on as many threads, if there is a team of them.

        The arguments are threes of numbers: of :func:`place` for an array.
        """
        task = (ctypes.c_int64 * (2 + len(arguments)))(0, parts, *arguments)
        team = _team()
        if parts == 1 or team is None:
            self._call(task)
        else:
            team(self.address, task, parts, 0)


def _compile(function: Callable[[Any], None]) -> Any:
    signature = "void(CPointer(int64))"
    try:
        return cfunc(signature, cache=True)(function)
    except RuntimeError:  # there is nowhere to keep what is compiled: do it in every process
        return cfunc(signature)(function)


def place(array: np.ndarray) -> tuple[int, int, int]:
    """The address and the shape of a contiguous matrix."""
    rows, columns = array.shape
    return array.ctypes.data, rows, columns


def teams() -> bool:
    """Whether loops can run on more than one thread."""
    return _team() is not None


@lru_cache(maxsize=1)
def _team() -> Callable[..., None] | None:
    # Windows has no table of all the functions in a process.
    found = getattr(ctypes.CDLL(None), "GOMP_parallel", None) if os.name == "posix" else None
    if found is not None:
        found.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        found.restype = None
    return found


@_intrinsic
def next_part(typing: Any, task: Any) -> Any:
    """Take the next part of a task, in one operation that no other thread can interrupt."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", arguments[0], one, "monotonic")

    return types.int64(task), generate


@_intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """An address as a pointer, for ``numba.carray``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@njit
def number(task, k):
    """The first of the three numbers of argument ``k`` of a task."""
    return task[2 + 3 * k]


@njit
def matrix(task, k, dtype):
    """The array that argument ``k`` of a task points to."""
    at = 2 + 3 * k
    return carray(pointer(task[at]), (task[at + 1], task[at + 2]), dtype)


@njit
def shares(task, columns):
    """Take parts until none is left: number, first column, column after the last."""
    while True:
        part = next_part(task)
        if part >= task[1]:
            return
        yield part, columns * part // task[1], columns * (part + 1) // task[1]
