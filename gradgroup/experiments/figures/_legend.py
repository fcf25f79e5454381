"""The one legend of all panels.

The idea. It stands below them and has an entry for each name, however many panels show it. Entries
are read along rows, in the order in which the names appear, and there are as few rows as the width
of the figure allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from gradgroup.experiments.figures._looks import CROSS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

Entry = TypeVar("Entry")


def add_legend(figure: Figure) -> float:
    """Explain all that has been drawn; the height of it, in inches."""
    legend = fitting(figure, entries_of(figure))
    return legend.get_window_extent().height / figure.dpi


def fitting(figure: Figure, entries: Sequence[Artist]) -> Legend:
    """The legend of the fewest rows that is not wider than the figure."""
    rows, legend = 1, put_legend(figure, entries, len(entries))
    while legend.get_window_extent().width > figure.bbox.width and rows < len(entries):
        legend.remove()
        rows += 1
        legend = put_legend(figure, entries, math.ceil(len(entries) / rows))
    return legend


def entries_of(figure: Figure) -> list[Artist]:
    """An artist for each name, and one for the crosses if there are any."""
    found: dict[str, Artist] = {}
    for axes in figure.axes:
        for artist, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, artist)
    lines = [line for axes in figure.axes for line in axes.lines]
    crossed = any(line.get_marker() == CROSS["marker"] for line in lines)
    return [*found.values(), cross()] if crossed else [*found.values()]


def cross() -> Artist:
    """What stands for the crosses of all colours."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label="blew up", color="0.4", **CROSS)


def put_legend(figure: Figure, entries: Sequence[Artist], columns: int) -> Legend:
    return figure.legend(
        handles=by_rows(entries, columns),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=2.8,
        columnspacing=1.6,
    )


def by_rows(entries: Sequence[Entry], columns: int) -> list[Entry]:
    """The order in which Matplotlib, which fills columns first, sets entries in rows.

    >>> by_rows("abcde", columns=3)
    ['a', 'd', 'b', 'e', 'c']
    """
    return [entry for column in range(columns) for entry in entries[column::columns]]
