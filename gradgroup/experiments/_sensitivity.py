"""The paper's figure: training loss against the learning rate, and a line for what has none.

Its data (:func:`sensitivity_info`) are computed apart from its drawing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gradgroup.experiments._results import Result, Score, heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe–Ito, told apart by colour-blind readers; the markers tell them apart in grey.
LOOKS = (("#D55E00", "o"), ("#0072B2", "s"), ("#009E73", "^"), ("#CC79A7", "D"))


class Curve(NamedTuple):
    """A baseline's training loss at each learning rate."""

    name: str
    rates: tuple[float, ...]
    means: tuple[float, ...]
    stds: tuple[float, ...]


class SensitivityInfo(NamedTuple):
    """All that the figure shows."""

    title: str
    curves: tuple[Curve, ...]
    reference: Score
    """Gradient Grouping's, which has no learning rate to vary."""


def sensitivity_info(results: Sequence[Result], epochs: int, seeds: int) -> SensitivityInfo:
    """Data of the figure: the baselines' curves and Gradient Grouping's line."""
    reference = next(result for result in results if result.best.rate is None)
    title = f"{heading(epochs, seeds)}, {reference.gradients} sample gradients per step"
    curves = tuple(curve(result) for result in results if result.best.rate is not None)
    return SensitivityInfo(title, curves, reference.best)


def curve(result: Result) -> Curve:
    rates = tuple(score.rate for score in result.scores if score.rate is not None)
    means = tuple(score.mean for score in result.scores)
    stds = tuple(0.0 if math.isnan(score.std) else score.std for score in result.scores)
    return Curve(result.name, rates, means, stds)


def plot_sensitivity(info: SensitivityInfo) -> Figure:
    """Training loss against the learning rate, and a line for what has none."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_axes(axes, info.title)
    draw_reference(axes, info.reference)
    for line, (colour, marker) in zip(info.curves, LOOKS, strict=True):
        draw_curve(axes, line, colour, marker)
    return figure


def draw_axes(axes: Axes, title: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_title(title, fontsize=10, loc="left")
    axes.set(xscale="log", yscale="log", xlabel="Learning rate")
    axes.set_ylabel("Mean loss over the training phase (± std over seeds)")
    axes.margins(y=0.08)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def draw_reference(axes: Axes, level: Score) -> None:
    std = 0.0 if math.isnan(level.std) else level.std
    axes.axhspan(level.mean - std, level.mean + std, color="black", alpha=0.2, linewidth=0)
    axes.axhline(level.mean, color="black", linewidth=1.5)
    axes.annotate(
        "GradientGrouping\n(no learning rate)",
        xy=(1, level.mean - std),
        xycoords=axes.get_yaxis_transform(),
        xytext=(0, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        weight="bold",
    )


def draw_curve(axes: Axes, line: Curve, colour: str, marker: str) -> None:
    bounds = list(zip(line.means, line.stds, strict=True))
    low, high = [mean - std for mean, std in bounds], [mean + std for mean, std in bounds]
    axes.fill_between(line.rates, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(line.rates, line.means, color=colour, marker=marker, markersize=6, linewidth=1.5)
    axes.annotate(
        line.name,
        xy=(line.rates[-1], high[-1]),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        color=colour,
        weight="bold",
    )


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write the figure for screens and for print, the same bytes for the same figure."""
    from matplotlib import rc_context

    paths = [folder / "digits.png", folder / "digits.svg"]
    with rc_context({"svg.hashsalt": "digits"}):
        figure.savefig(paths[0], dpi=200)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths
