"""What every optimizer came to on a data set, as rows; and rows as lines of a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gradgroup.experiments.engine import GROUPING
from gradgroup.experiments.report._claims import grouping
from gradgroup.experiments.report._scores import Best, Score, Scores, at_edge, best, trials
from gradgroup.experiments.report._words import loss
from gradgroup.experiments.study._plans import BASELINES, OWN, rates_of

HEAD = ("optimizer", "best rate", "loss in training", "loss at the end", "within 10% of its best")
NUMBERS = frozenset({1, 2, 3, 4})


def contestants(scores: Scores, data: str, pixels: str = "unit") -> list[Best]:
    """Each optimizer at its best, the paper's first, then our own, then the baselines."""
    paper = next(
        Best(trial, score)
        for trial, score in trials(scores, data, GROUPING, pixels).items()
        if score is grouping(scores, data, pixels=pixels)
    )
    rest = [
        best(found) for name in (*OWN, *BASELINES) if (found := trials(scores, data, name, pixels))
    ]
    return [paper, *rest]


def rows(scores: Scores, data: str, pixels: str = "unit") -> list[tuple[str, ...]]:
    """A row for each of them; a star where a rate beyond the grid may be better."""
    return [cells(found, scores, pixels) for found in contestants(scores, data, pixels)]


def cells(found: Best, scores: Scores, pixels: str) -> tuple[str, ...]:
    trial, score = found
    if trial.rate is None:
        return (trial.optimizer, "none", spread(score), loss(score.final), "")
    tried = trials(scores, trial.data, trial.optimizer, pixels)
    star = "*" if at_edge(tried) else ""
    near = sum(math.isfinite(s.mean) and s.mean <= 1.1 * score.mean for s in tried.values())
    return (
        trial.optimizer,
        f"{trial.rate:.2g}{star}",
        spread(score),
        loss(score.final),
        f"{near} of {len(rates_of(trial.optimizer))} rates",
    )


def spread(score: Score) -> str:
    """Mean and standard deviation over the seeds."""
    return loss(score.mean) if math.isnan(score.std) else f"{loss(score.mean)} ± {score.std:.4f}"


def aligned(head: Sequence[str], lines: Iterable[Sequence[str]], numbers: Iterable[int]) -> str:
    """A table for a terminal; columns of numbers stand to the right."""
    table, right = [tuple(head), *map(tuple, lines)], set(numbers)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    shown = [
        "  ".join(
            cell.rjust(width) if k in right else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])
