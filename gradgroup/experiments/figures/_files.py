"""Figures without pyplot, and their files.

The idea. A figure is made on a canvas of its own, so that nothing outside knows of it and it goes
when its last reference does. The same figure makes the same bytes: no date is written, and the ids
of an SVG come from its content. Letters are outlines, so that its look does not depend on the fonts
of the machine that shows it.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Sharp where a page of 800 pixels shows a figure of ten inches at double density.
DPI = 160
COLOURS = 256


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure for screens and for print.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Of :func:`plot_panels` or :func:`plot_idea`.
    stem : Path
        The files without their endings, in a folder that exists.

    Returns
    -------
    list of Path
        A PNG and an SVG. The same figure is written as the same bytes.
    """
    from matplotlib import rc_context

    png, svg = (stem.parent / f"{stem.name}.{ending}" for ending in ("png", "svg"))
    settle(figure)
    with rc_context({"svg.hashsalt": "gradgroup", "svg.fonttype": "path"}):
        figure.savefig(svg, metadata={"Date": None})
    save_png(figure, png)
    return [png, svg]


def settle(figure: Figure) -> None:
    """Give everything its place for good.

    The layout would be made again at every saving, from where the last one left it: a PNG and an
    SVG would differ by a hair, and so would the same figure saved twice.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def save_png(figure: Figure, path: Path) -> None:
    """With a palette: a third of the bytes, and no difference to be seen."""
    from PIL import Image  # comes with Matplotlib

    whole = BytesIO()
    figure.savefig(whole, format="png", dpi=DPI)
    with Image.open(whole) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)
