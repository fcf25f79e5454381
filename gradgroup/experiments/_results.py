"""What a comparison of optimizers came to, and the table that says it.

Conventions: a "run" is one training from start to end; a "score" sums up the runs of one
optimizer at one rate, one for each seed; a "result" has its scores at all rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple


class Run(NamedTuple):
    """The losses of one training."""

    training: float
    """Mean over all steps, where the gradients were taken."""
    final: float
    """On all samples, after the last step."""


class Score(NamedTuple):
    """What an optimizer came to at one rate, over the seeds."""

    rate: float | None
    mean: float
    """The training loss."""
    std: float
    """Its standard deviation over the seeds; NaN where there is but one seed."""
    final: float


class Result(NamedTuple):
    """What an optimizer came to at all of its rates."""

    name: str
    gradients: int
    """Sample gradients per step."""
    scores: tuple[Score, ...]

    @property
    def best(self) -> Score:
        return min(self.scores, key=lambda score: score.mean)

    @property
    def worst(self) -> Score:
        return max(self.scores, key=lambda score: score.mean)

    @property
    def at_edge(self) -> bool:
        """Whether rates beyond the grid may be better than any in it."""
        return len(self.scores) > 1 and self.best in (self.scores[0], self.scores[-1])


def score(rate: float | None, runs: Sequence[Run]) -> Score:
    """The runs of all seeds in three numbers."""
    training = [run.training for run in runs]
    std = stdev(training) if len(runs) > 1 else math.nan
    return Score(rate, fmean(training), std, fmean(run.final for run in runs))


HEAD = (
    ("", "sample gradients", "best", "training loss,", "loss at", "training loss"),
    ("optimizer", "per step", "rate", "mean ± std", "the end", "at the worst rate"),
)


def table(results: Iterable[Result]) -> str:
    """One line for each optimizer, at its best rate."""
    lines = [*HEAD, *(cells(result) for result in results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [aligned(line, widths) for line in lines]
    return "\n".join([*rows[: len(HEAD)], "-" * len(rows[-1]), *rows[len(HEAD) :]])


def aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    name, *rest = line
    cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
    return "  ".join([name.ljust(widths[0]), *cells])


def cells(result: Result) -> tuple[str, ...]:
    best, worst = result.best, result.worst
    if worst.rate is None or best.rate is None:
        rate, at_worst = "none", "none"
    else:
        rate, at_worst = f"{best.rate:.3g}", f"{worst.mean:.3f} (at {worst.rate:.3g})"
    spread = "" if math.isnan(best.std) else f" ± {best.std:.3f}"
    mean = f"{best.mean:.3f}{spread}"
    return (result.name, str(result.gradients), rate, mean, f"{best.final:.3f}", at_worst)


def notes(results: Iterable[Result]) -> list[str]:
    """What a reader must know to read the table, and before trusting a best rate."""
    measured = (
        "Training loss: the mean over all steps of the loss where the gradient is taken; its\n"
        "standard deviation is over the seeds. Loss at the end: on all samples, where it is served."
    )
    edges = [
        f"{result.name} is best at the edge of its grid: a rate beyond it may be better."
        for result in results
        if result.at_edge
    ]
    return ["", measured, *edges]


def heading(epochs: int, seeds: int) -> str:
    return f"Softmax regression on digits: {counted(epochs, 'epoch')}, {counted(seeds, 'seed')}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
