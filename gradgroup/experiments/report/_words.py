"""How data sets, losses and ratios are put into words.

The idea. A run that blew up has no loss, and what is computed from it is infinite or no number at
all. Whoever writes of losses does so through this module, which says it in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

TITLES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "emnist-letters": "Extended-MNIST letters",
    "cifar10": "CIFAR-10",
    "stl10": "STL-10",
    "svhn": "SVHN",
    "digits": "digits",
}
BLEW_UP = "blew up"


def title(data: str, parameters: int) -> str:
    """As in the paper: the name of the data set and the number of parameters."""
    return f"{TITLES[data]} ({parameters:,} parameters)"


def loss(value: float, digits: int = 4) -> str:
    """A loss.

    >>> loss(0.31234), loss(math.inf)
    ('0.3123', 'blew up')
    """
    return f"{value:.{digits}f}" if math.isfinite(value) else BLEW_UP


def ratio(value: float) -> str:
    """A ratio, to three digits or so.

    >>> ratio(0.123), ratio(12.34), ratio(1234.5)
    ('0.12', '12.3', '1,234')
    """
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def times(value: float, what: str = "") -> str:
    """So many times something.

    >>> times(2.345, "as high"), times(math.inf, "as high")
    ('2.35 × as high', 'blew up')
    """
    return f"{ratio(value)} × {what}".rstrip() if math.isfinite(value) else BLEW_UP


def span(values: Sequence[float]) -> str:
    """Ratios from the smallest to the largest.

    >>> span([1.0, 2.0]), span([1.0, math.inf, 2.0]), span([math.inf])
    ('1.00 to 2.00', '1.00 to 2.00 (1 blew up)', 'blew up')
    """
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return BLEW_UP
    low, high = ratio(known[0]), ratio(known[-1])
    found = low if low == high else f"{low} to {high}"
    lost = len(values) - len(known)
    return f"{found} ({lost} {BLEW_UP})" if lost else found
