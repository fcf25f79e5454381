"""The frame of a panel: scales, limits, ticks.

The idea. A diverging baseline reaches a loss of a thousand where the contest is between 0.3 and
0.4. The view is therefore made for what is of interest, and what lies above leaves it through the
top. Limits come from the data alone, before anything is drawn. Ticks are few and round, and plain
numbers; learning rates, on their log axis, are powers of ten.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradgroup.experiments.figures._records import Frame, Panel, Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.ticker import Locator

# Of the height of a panel, above and below what is shown.
MARGIN = 0.06
# Ticks of a log axis, by the ratio of its ends. Up to FEW they are evenly spaced, as of 1, 2, 3, 5
# there would be one or none; from SOME and from MANY on these would crowd.
FEW, SOME, MANY = 6.0, 100.0, 1e4
# A band is followed down to this part of its mean: below, a log axis would show nothing else.
LOWEST_BAND = 0.7


def draw_frame(axes: Axes, panel: Panel, frame: Frame) -> None:
    """All of a panel that is not data."""
    axes.set_title(panel.title, fontsize="medium", loc="left")
    axes.set(xscale=frame.x_scale, yscale=frame.y_scale, ylim=limits(panel, frame))
    set_x_ticks(axes.xaxis, frame.x_scale, whole=_is_whole(panel))
    set_y_ticks(axes, frame.y_scale)
    axes.grid(which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def limits(panel: Panel, frame: Frame) -> tuple[float, float]:
    """From a bit below the lowest mean to a bit above the highest one that is of interest.

    >>> from gradgroup.experiments.figures import Line
    >>> panel = Panel("", (), (Line("one", 0.3, 0.0), Line("other", 500.0, 0.0)))
    >>> low, high = limits(panel, Frame("x", "y", highest=10.0))
    >>> 0.2 < low < 0.3, high
    (True, 10.0)
    """
    measured = _measured(panel)
    low = min(max(mean - std, LOWEST_BAND * mean) for mean, std in measured)
    high = max(mean + std for mean, std in measured)
    below, above = _widened(low, min(high, frame.highest), frame.y_scale)
    return below, min(above, frame.highest)


def _measured(panel: Panel) -> list[tuple[float, float]]:
    """Finite means and their standard deviations."""
    points = [pair for c in panel.curves for pair in zip(c.mean, c.std, strict=True)]
    points += [(line.mean, line.std) for line in panel.lines]
    # A panel of nothing but runs that blew up has no scale; any will do.
    return [pair for pair in points if math.isfinite(pair[0])] or [(1.0, 0.0)]


def _widened(low: float, high: float, scale: Scale) -> tuple[float, float]:
    if scale == "log":
        # Means that are all the same need some height as well.
        margin = max((high / low) ** MARGIN, 1.02)
        return low / margin, high * margin
    extra = max(MARGIN * (high - low), 0.02 * abs(high))
    return low - extra, high + extra


def _is_whole(panel: Panel) -> bool:
    """Whether what is varied is counted: members, epochs."""
    return all(float(x).is_integer() for curve in panel.curves for x in curve.x)


def set_x_ticks(axis: Axis, scale: Scale, *, whole: bool) -> None:
    from matplotlib.ticker import LogFormatterMathtext, LogLocator, MaxNLocator, NullLocator

    if scale == "log":
        axis.set_major_locator(LogLocator())
        axis.set_major_formatter(LogFormatterMathtext())
    else:
        axis.set_major_locator(MaxNLocator(6, steps=(1, 2, 5, 10), integer=whole))
        axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def set_y_ticks(axes: Axes, scale: Scale) -> None:
    from matplotlib.ticker import NullLocator

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(_y_locator(1.0 if scale == "linear" else high / low))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _y_locator(ratio: float) -> Locator:
    from matplotlib.ticker import LogLocator, MaxNLocator

    if ratio < FEW:
        return MaxNLocator(6, steps=(1, 2, 5, 10))
    if ratio < SOME:
        return LogLocator(subs=(1, 2, 3, 5))
    return LogLocator(subs=(1, 2, 5) if ratio < MANY else (1,))
