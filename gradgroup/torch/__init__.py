"""Optimizers for PyTorch."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "gradgroup.torch needs PyTorch, which is not installed: pip install 'gradgroup[torch]'."
    ) from error

from gradgroup.torch._auto import AutoGrouping, Pacing
from gradgroup.torch._grouping import GradientGrouping
from gradgroup.torch._rounds import Member
from gradgroup.torch._solve import Diagnostics

__all__ = ["AutoGrouping", "Diagnostics", "GradientGrouping", "Member", "Pacing"]
