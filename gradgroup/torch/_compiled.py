"""The compiled passes over memory, where they are installed, and how they are told of tensors."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor


@lru_cache(maxsize=4)
def compiled(name: str) -> ModuleType | None:
    """A module of ``gradgroup.core`` that needs Numba; None where that is not installed."""
    try:
        return import_module(f"gradgroup.core.{name}")
    except ImportError:
        return None


def compiled_for(name: str, rows: Tensor) -> ModuleType | None:
    """The module, if it can take these numbers and would be faster than PyTorch."""
    if rows.device.type != "cpu" or rows.dtype not in (torch.float32, torch.float64):
        return None
    found = compiled(name)
    # On one thread they would be no match for PyTorch on many.
    return found if found is not None and found.teams() else None


def place(matrix: Tensor) -> tuple[int, int, int]:
    """The address and the shape of a contiguous matrix."""
    rows, columns = matrix.shape
    return matrix.data_ptr(), rows, columns
