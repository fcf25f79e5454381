"""The comparisons: a panel for each data set, in each curves and horizontal lines.

The idea. A mean is a line, the standard deviation over seeds a band around it. Runs that blew up
have no mean to draw; a cross at the top edge says that they were tried. Lines lie under curves,
which are read against them. One legend serves all panels.

Conventions. Colours, markers and dashes belong to names (``_looks.py``), limits and ticks to the
frame (``_frames.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gradgroup.experiments.figures._files import blank
from gradgroup.experiments.figures._frames import draw_frame
from gradgroup.experiments.figures._legend import add_legend
from gradgroup.experiments.figures._looks import CROSS, Look, looks
from gradgroup.experiments.figures._records import Curve, Frame, Line, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

# Inches a panel, by the number of columns: the fewer, the larger, up to what fills a page.
SIZES = {1: (6.4, 4.2), 2: (4.6, 3.4)}
SMALL = (3.3, 3.0)
# A curve of more points than this is a line; its markers would be a chain.
MARKED = 20
# Of the height of a panel: crosses of several curves are in rows of their own.
ROW = 0.05
# Of the width of a panel: the crosses of a line.
ALONG = (0.1, 0.3, 0.5, 0.7, 0.9)
BAND = 0.18


def plot_panels(panels: Sequence[Panel], frame: Frame, *, columns: int = 3) -> Figure:
    """A figure of several panels with one legend.

    Parameters
    ----------
    panels : sequence of Panel
        What is shown; at least one.
    frame : Frame
        The axes of all panels.
    columns : int, default 3
        How many panels there are side by side, at most. Rows are filled evenly: four panels are
        two rows of two.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; :func:`save` writes it.

    Examples
    --------
    >>> curve = Curve("SGD", x=(0.1, 1.0, 10.0), mean=(0.5, 0.4, math.inf), std=(0.01, 0.01, 0.0))
    >>> panel = Panel("digits", (curve,), (Line("AutoGrouping", 0.3, 0.002),))
    >>> figure = plot_panels([panel], Frame("Learning rate", "Loss", x_scale="log"))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['SGD', 'AutoGrouping', 'blew up']
    """
    rows = math.ceil(len(panels) / columns)
    columns = math.ceil(len(panels) / rows)
    width, height = SIZES.get(columns, SMALL)
    figure = blank(columns * width, rows * height)
    known = looks(_names(panels))
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        draw_panel(axes, panel, frame, known)
        label_outside(axes, frame, left=number % columns == 0, last=number + columns >= len(panels))
    # What the legend needs must not be taken from the panels.
    figure.set_figheight(rows * height + add_legend(figure))
    return figure


def _names(panels: Sequence[Panel]) -> list[str]:
    """All names, in the order of the legend."""
    entries = (each for panel in panels for each in (panel.curves, panel.lines))
    return [entry.name for each in entries for entry in each]


def draw_panel(axes: Axes, panel: Panel, frame: Frame, known: Mapping[str, Look]) -> None:
    draw_frame(axes, panel, frame)
    for curve in panel.curves:
        draw_curve(axes, curve, known[curve.name])
    for line in panel.lines:
        draw_line(axes, line, known[line.name])
    for row, lost in enumerate(blown_up(panel, axes)):
        draw_crosses(axes, lost, known[lost.name].colour, height=1.0 - row * ROW)
    if panel.note:
        write_note(axes, panel.note)


def label_outside(axes: Axes, frame: Frame, *, left: bool, last: bool) -> None:
    """Labels at the left and at the bottom of the figure, not at every panel."""
    if left:
        axes.set_ylabel(frame.y)
    if last:
        axes.set_xlabel(frame.x)


def draw_curve(axes: Axes, curve: Curve, look: Look) -> None:
    """The finite means and their band; both have a gap where a mean is infinite."""
    mean, std = np.asarray(curve.mean), np.asarray(curve.std)
    mean = np.where(np.isfinite(mean), mean, np.nan)
    # A log axis has no place for what is below zero; the band ends where the panel does.
    low = np.maximum(mean - std, axes.get_ylim()[0])
    axes.fill_between(curve.x, low, mean + std, color=look.colour, alpha=BAND, linewidth=0)
    pen = look.pen_with_markers() if len(mean) <= MARKED else look.pen()
    axes.plot(curve.x, mean, label=curve.name, zorder=3, **pen)


def draw_line(axes: Axes, line: Line, look: Look) -> None:
    if not math.isfinite(line.mean):
        # Nothing to see, but an entry in the legend, which says whose the crosses are.
        axes.plot([], [], label=line.name, **look.pen())
        return
    low = max(line.mean - line.std, axes.get_ylim()[0])
    axes.axhspan(low, line.mean + line.std, color=look.colour, alpha=BAND, linewidth=0)
    axes.axhline(line.mean, label=line.name, zorder=2, **look.pen())


class Lost(NamedTuple):
    """Whose runs blew up, and where."""

    name: str
    x: Sequence[float]
    place: Transform
    """What ``x`` are coordinates of, at heights from 0 to 1."""


def blown_up(panel: Panel, axes: Axes) -> list[Lost]:
    """Where means are infinite: points of a curve, or all along a line."""
    at_x, everywhere = axes.get_xaxis_transform(), axes.transAxes
    curves = [Lost(curve.name, _infinite(curve), at_x) for curve in panel.curves]
    gone = [line for line in panel.lines if not math.isfinite(line.mean)]
    lines = [Lost(line.name, ALONG, everywhere) for line in gone]
    return [lost for lost in (*curves, *lines) if lost.x]


def _infinite(curve: Curve) -> list[float]:
    return [x for x, mean in zip(curve.x, curve.mean, strict=True) if not math.isfinite(mean)]


def draw_crosses(axes: Axes, lost: Lost, colour: str, height: float) -> None:
    where = (lost.x, [height] * len(lost.x))
    axes.plot(*where, color=colour, transform=lost.place, clip_on=False, zorder=4, **CROSS)


def write_note(axes: Axes, note: str) -> None:
    # A legend without entries: the only text that looks for a place where it covers least.
    axes.legend(handles=[], title=note, title_fontsize="small", loc="best", frameon=False)
