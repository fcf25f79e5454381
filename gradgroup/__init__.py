"""Training with the gradients of several parameter vectors at once, and no learning rate."""

from __future__ import annotations

import importlib
from types import ModuleType

from gradgroup.core import step_sizes

__version__ = "0.1.0.dev0"
__all__ = ["__version__", "step_sizes", "torch"]

_LAZY = ("torch",)


def __getattr__(name: str) -> ModuleType:
    """Import a front door when it is first used, so that NumPy alone is enough for the core."""
    if name in _LAZY:
        return importlib.import_module(f"gradgroup.{name}")
    raise AttributeError(f"module 'gradgroup' has no attribute {name!r}")
