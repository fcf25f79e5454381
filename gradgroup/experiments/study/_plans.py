"""Which runs each figure of the evaluation needs.

The idea. A plan is a list of settings. Figures share runs, and a run is done once, because its
setting is all there is to it. What the paper leaves open has a plan of its own: how far apart the
members start, whether they see the same samples, how pixels are scaled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gradgroup.experiments.engine import BATCH, GROUPING, Setting

BASELINES = ("SGD", "Nesterov", "Adam", "RMSprop", "L-BFGS")
OWN = ("GradientGrouping", "AutoGrouping")
# A factor √10 apart; for L-BFGS, whose steps cost as much as a hundred of the others', a factor 10.
RATES = tuple(10.0 ** (k / 2) for k in range(-10, 3))
RATES_LBFGS = tuple(10.0**k for k in range(-5, 2))
MEMBERS = (2, 4, 6, 8, 10)
SPREADS = tuple(10.0 ** (k / 2) for k in range(-4, 5))
HALF = BATCH // 2
PAPER_SPREAD = 1.0
"""Members that start as PyTorch initialises a layer, each by itself."""


class Level(NamedTuple):
    """How much of everything."""

    name: str
    seeds: int
    epochs: int
    epochs_digits: int
    """On the digits, whose epochs have but 28 steps."""

    def epochs_on(self, data: str) -> int:
        return self.epochs_digits if data == "digits" else self.epochs


QUICK = Level("quick", seeds=2, epochs=2, epochs_digits=20)
DEFAULT = Level("default", seeds=5, epochs=10, epochs_digits=100)
PAPER = Level("paper", seeds=10, epochs=100, epochs_digits=100)


def rates_of(optimizer: str) -> tuple[float, ...]:
    """The learning rates a baseline is tried at."""
    return RATES_LBFGS if optimizer == "L-BFGS" else RATES


def baseline(data: str, level: Level, optimizer: str, pixels: str = "unit") -> list[Setting]:
    """A baseline at all of its rates."""
    return [
        Setting(data, optimizer, rate, seed, level.epochs_on(data), pixels)
        for seed in range(level.seeds)
        for rate in rates_of(optimizer)
    ]


def grouping(
    data: str,
    level: Level,
    *,
    members: int = 2,
    batch: int = HALF,
    common: bool = False,
    spread: float = PAPER_SPREAD,
    pixels: str = "unit",
) -> list[Setting]:
    """The paper's algorithm, to the letter."""
    like = Setting(
        data, GROUPING, None, 0, level.epochs_on(data), pixels, members, batch, common, spread
    )
    return [like._replace(seed=seed) for seed in range(level.seeds)]


def own(data: str, level: Level, optimizer: str, pixels: str = "unit") -> list[Setting]:
    """One of our optimizers as it comes, at 64 sample gradients a step."""
    members, batch = (1, BATCH) if optimizer == "AutoGrouping" else (2, HALF)
    like = Setting(data, optimizer, None, 0, level.epochs_on(data), pixels, members, batch)
    return [like._replace(seed=seed) for seed in range(level.seeds)]


# The figures.


def sensitivity(data: str, level: Level) -> list[Setting]:
    """The paper's main figure: baselines at all rates, and what needs none."""
    rivals = [s for optimizer in BASELINES for s in baseline(data, level, optimizer)]
    ours = [s for optimizer in OWN for s in own(data, level, optimizer)]
    return [*rivals, *grouping(data, level), *ours]


def members(data: str, level: Level) -> list[Setting]:
    """The paper's figure of N: 32 samples for every member; and the same 64 for all of them."""
    more = [s for n in MEMBERS for s in grouping(data, level, members=n)]
    same = [s for n in MEMBERS for s in grouping(data, level, members=n, batch=BATCH // n)]
    return [*more, *same]


def spreads(data: str, level: Level) -> list[Setting]:
    """How far apart the members start, on batches of their own and on a common one.

    A common batch has 32 samples, so that a step costs the same; or 64, for workers who each can
    afford as many as a baseline.
    """
    kinds = ((HALF, False), (HALF, True), (BATCH, True))
    return [
        s
        for batch, common in kinds
        for spread in SPREADS
        for s in grouping(data, level, spread=spread, batch=batch, common=common)
    ]


def scalings(data: str, level: Level) -> list[Setting]:
    """Standardised pixels, without L-BFGS."""
    rivals = [s for name in BASELINES[:-1] for s in baseline(data, level, name, "standard")]
    ours = [s for name in OWN for s in own(data, level, name, "standard")]
    theirs = [
        s
        for common in (False, True)
        for s in grouping(data, level, pixels="standard", common=common)
    ]
    return [*rivals, *ours, *theirs]


def everything(data: Iterable[str], level: Level) -> list[Setting]:
    """All runs of the evaluation, each once."""
    plans = (sensitivity, members, spreads, scalings)
    return list(dict.fromkeys(s for name in data for plan in plans for s in plan(name, level)))
