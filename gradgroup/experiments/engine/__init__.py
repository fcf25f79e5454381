"""Training runs: what one is, many of them as one stack, and one by one by PyTorch."""

from gradgroup.experiments.engine._setting import BATCH, GROUPING, Run, Setting
from gradgroup.experiments.engine._stack import Grid, Stack

__all__ = ["BATCH", "GROUPING", "Grid", "Run", "Setting", "Stack"]
