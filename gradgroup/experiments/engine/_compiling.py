"""How loops are compiled, once for all processes where there is a place to keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

# NaN and Inf must stay what they are; the order of a sum is free, so that it can be vectorised.
_OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Any:
    """A compiled function, for what is called with one file's functions and constants alone.

    What is kept is not compiled anew when another file changes.
    """
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # there is nowhere to keep it
        return compiled_anew(function)


def compiled_anew(function: Callable[..., Any]) -> Any:
    """The same for a function that is made of others when it is called for."""
    return njit(**_OPTIONS)(function)
