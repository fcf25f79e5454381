"""The paper's Figure 1, its drawing.

The idea. Two panels show the same function. In the first, every arrow ends where the next one
starts; in the second, the arrows have lines, and the jumps go along these past the arrows.

Conventions. Arrows in both panels are negative gradients in the same unit, the learning rate of the
descent. Units along both axes are equal, as otherwise gradients would not stand on the contours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradgroup.experiments.figures._files import blank
from gradgroup.experiments.figures._idea import RATE, WINDOW, Array, IdeaInfo
from gradgroup.experiments.figures._looks import BLUE, VERMILLION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINT, ARROW, LINE = "point", "negative gradient", "the line it draws"
CIRCLE, STAR = "where it jumps to", "minimiser"


def plot_idea(info: IdeaInfo) -> Figure:
    """The figure: (a) gradient descent, (b) Gradient Grouping.

    Parameters
    ----------
    info : IdeaInfo
        From :func:`idea_info`.

    Returns
    -------
    matplotlib.figure.Figure
        Not known to pyplot; :func:`save` writes it.
    """
    figure = blank(9.0, 5.2)
    left, right = figure.subplots(1, 2)
    draw_landscape(left, info, "(a) Gradient descent: one point, step by step")
    draw_landscape(right, info, "(b) Gradient Grouping: four points, one jump")
    draw_descent(left, info)
    draw_jump(right, info)
    add_legend(figure, right)
    return figure


def draw_landscape(axes: Axes, info: IdeaInfo, title: str) -> None:
    axes.set_title(title, fontsize="medium", loc="left")
    axes.contour(info.x, info.y, info.values, levels=info.levels, colors="0.8", linewidths=0.9)
    axes.plot(*info.minimiser, "*", color=VERMILLION, markersize=15, zorder=3, label=STAR)
    axes.set(aspect="equal", xlim=WINDOW[0], ylim=WINDOW[1], xticks=[], yticks=[])
    axes.spines[:].set_color("0.8")


def draw_descent(axes: Axes, info: IdeaInfo) -> None:
    draw_arrows(axes, info.path[:-1], info.path_grads[:-1])
    draw_points(axes, info.path)
    write_name(axes, "θ", info.path[0], info.path_grads[0])


def draw_jump(axes: Axes, info: IdeaInfo) -> None:
    for number, (theta, grad) in enumerate(zip(info.thetas, info.grads, strict=True)):
        axes.axline(theta, theta + grad, color="0.5", linewidth=0.8, zorder=1, label=LINE)
        write_name(axes, "θ" + "₁₂₃₄"[number], theta, grad)
    draw_arrows(axes, info.thetas, info.grads)
    draw_points(axes, info.thetas)
    axes.plot(
        *info.landed.T,
        "o",
        color=BLUE,
        markerfacecolor="white",
        markeredgewidth=1.6,
        markersize=8,
        zorder=4,
        label=CIRCLE,
    )


def draw_arrows(axes: Axes, points: Array, grads: Array) -> None:
    axes.quiver(
        *points.T,
        *(-RATE * grads).T,
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.008,
        color="black",
        zorder=2,
    )


def draw_points(axes: Axes, points: Array) -> None:
    axes.plot(*points.T, "o", color="black", markersize=5.5, zorder=3, label=POINT)


def write_name(axes: Axes, name: str, point: Array, grad: Array) -> None:
    """Beside the point, and beside the line through it."""
    away = 13 * np.array([-grad[1], grad[0]]) / np.linalg.norm(grad)
    axes.annotate(
        name,
        xy=(point[0], point[1]),
        xytext=(away[0], away[1]),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize="large",
    )


def add_legend(figure: Figure, axes: Axes) -> None:
    """What the signs of the second panel mean, which has all of them."""
    from matplotlib.lines import Line2D

    drawn = {str(artist.get_label()): artist for artist in axes.lines}
    # Matplotlib has no entry for arrows; this one is a letter.
    arrow = Line2D(
        [],
        [],
        color="black",
        linestyle="none",
        marker=r"$\rightarrow$",
        markersize=16,
        label=ARROW,
    )
    entries = (drawn[POINT], arrow, drawn[LINE], drawn[CIRCLE], drawn[STAR])
    figure.legend(handles=entries, loc="outside lower center", ncols=5, frameon=False)
