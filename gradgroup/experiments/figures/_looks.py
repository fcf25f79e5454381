"""How every contestant looks, the same in all figures.

The idea. A reader who has learnt one figure reads the others without a legend. Colours are those
of Okabe and Ito, which colour-blind readers tell apart; markers and dashes tell the same names
apart in grey. Black is the paper's method, as in the paper; the strongest colour and the thickest
line are AutoGrouping's; the rest is left to the baselines.

Conventions. Names that are not known here take what is left in the order in which they appear.
Their markers are hollow, so that none of them is mistaken for a contestant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

Dash: TypeAlias = str | tuple[float, tuple[float, ...]]

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

SOLID: Dash = "-"
# In units of the line's width: Matplotlib's own are too much alike in a legend.
DASHED: Dash = (0, (5, 2))
DOTTED: Dash = (0, (1.2, 1.2))
DASH_DOT: Dash = (0, (6, 1.5, 1.5, 1.5))
DASH_DOT_DOT: Dash = (0, (6, 1.5, 1.2, 1.5, 1.2, 1.5))
LONG: Dash = (0, (9, 2.5))


class Look(NamedTuple):
    """How one name is drawn."""

    colour: str
    marker: str
    dash: Dash
    width: float = 1.5
    hollow: bool = False

    def pen(self) -> dict[str, Any]:
        """Matplotlib's settings for a line without markers."""
        return {"color": self.colour, "linestyle": self.dash, "linewidth": self.width}

    def pen_with_markers(self) -> dict[str, Any]:
        """Matplotlib's settings for a line with a marker at each point."""
        face = "white" if self.hollow else self.colour
        # A thick line would hide a marker of the size that suits a thin one.
        size = 3.0 + 1.8 * self.width
        return self.pen() | {"marker": self.marker, "markersize": size, "markerfacecolor": face}


CONTESTANTS = {
    "SGD": Look(BLUE, "o", SOLID),
    "Nesterov": Look(SKY, "s", DASHED),
    "Adam": Look(GREEN, "^", DASH_DOT),
    "RMSprop": Look(PURPLE, "D", DOTTED),
    "L-BFGS": Look(ORANGE, "v", DASH_DOT_DOT),
    "GG (paper)": Look(BLACK, "P", SOLID),
    "GradientGrouping": Look(BLACK, "h", DASHED),
    "AutoGrouping": Look(VERMILLION, "p", SOLID, width=2.6),
}
OTHERS = (
    Look(BLUE, "o", DASHED, hollow=True),
    Look(PURPLE, "s", SOLID, hollow=True),
    Look(GREEN, "^", DOTTED, hollow=True),
    Look(ORANGE, "D", LONG, hollow=True),
    Look(SKY, "v", DASH_DOT, hollow=True),
)
# Runs that blew up, in the colour of their curve.
CROSS: dict[str, Any] = {"linestyle": "none", "marker": "x", "markeredgewidth": 2}


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each name.

    >>> found = looks(["64 samples in all", "SGD", "64 samples in all"])
    >>> found["SGD"] == CONTESTANTS["SGD"], found["64 samples in all"] == OTHERS[0]
    (True, True)
    """
    once = list(dict.fromkeys(names))
    unknown = [name for name in once if name not in CONTESTANTS]
    others = {name: OTHERS[k % len(OTHERS)] for k, name in enumerate(unknown)}
    return {name: CONTESTANTS.get(name) or others[name] for name in once}
