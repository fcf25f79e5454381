"""What the studies of AutoGrouping make of their runs: which losses, which mean, which file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

# Of a run; both are compared, as ratios.
LOSSES = ("running", "final")


def geometric(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    return math.exp(fmean(math.log(ratio) for ratio in ratios))


def write_csv(path: Path, rows: Sequence[Any]) -> None:
    """Named tuples of one kind, numbers to five digits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0]._fields)
        writer.writerows([f"{v:.5g}" if isinstance(v, float) else v for v in row] for row in rows)
