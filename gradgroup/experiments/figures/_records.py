"""What a figure shows, as plain numbers.

The idea. All comparisons have one form: a panel for each data set, in it a curve for each optimizer
against something that is varied, and a horizontal line for each optimizer that has no such thing.
The data of a figure are computed apart from its drawing, and can be tested and written down without
it.

Conventions. Means and standard deviations are over seeds; a standard deviation is 0 where there is
but one seed. A mean of runs that blew up is infinite.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

Scale: TypeAlias = Literal["linear", "log"]


class Curve(NamedTuple):
    """What is measured against what is varied."""

    name: str
    x: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Line(NamedTuple):
    """What is measured where nothing is varied."""

    name: str
    mean: float
    std: float


class Panel(NamedTuple):
    """One data set."""

    title: str
    curves: tuple[Curve, ...]
    lines: tuple[Line, ...] = ()
    note: str = ""
    """Small print inside, where it covers least."""


class Frame(NamedTuple):
    """The axes that all panels of a figure have in common."""

    x: str
    """What is varied, as the label of the axis."""
    y: str
    """What is measured, as the label of the axis."""
    x_scale: Scale = "linear"
    y_scale: Scale = "log"
    highest: float = math.inf
    """The largest value that is of interest: whatever is above leaves a panel through its top."""
