"""Runs summed up: what a setting came to over its seeds, and which rate is best.

Conventions. A *trial* is a setting of any seed: its own has seed 0. Losses are the paper's: the
mean over all of training of the loss where gradients are taken. A trial of which a run blew up is
infinitely bad.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from gradgroup.experiments.engine import Run, Setting


class Score(NamedTuple):
    """What a trial came to."""

    mean: float
    std: float
    """Over the seeds; NaN where there is but one, or where one blew up."""
    final: float
    """Mean loss of all samples at the end."""
    seeds: int
    lost: int
    """How many runs blew up."""
    epochs: tuple[float, ...]
    """Mean loss in every epoch; none where a run blew up."""
    calls: float
    """Mean number of gradients taken."""


class Best(NamedTuple):
    """The best trial of an optimizer."""

    trial: Setting
    score: Score


Scores = Mapping[Setting, Score]


def scores_of(runs: Mapping[Setting, Run]) -> dict[Setting, Score]:
    """All trials."""
    grouped: dict[Setting, list[Run]] = defaultdict(list)
    for setting, run in runs.items():
        grouped[setting._replace(seed=0)].append(run)
    return {trial: score(found) for trial, found in grouped.items()}


def score(runs: list[Run]) -> Score:
    """The runs of all seeds in a few numbers."""
    training, lost = [run.training for run in runs], sum(run.lost for run in runs)
    spread = stdev(training) if len(runs) > 1 and not lost else math.nan
    epochs = () if lost else tuple(map(fmean, zip(*(run.losses for run in runs), strict=True)))
    final, calls = fmean(run.final for run in runs), fmean(run.calls for run in runs)
    return Score(fmean(training), spread, final, len(runs), lost, epochs, calls)


def trials(scores: Scores, data: str, optimizer: str, pixels: str = "unit") -> dict[Setting, Score]:
    """The trials of an optimizer on a data set, by rate."""
    found = {
        trial: score
        for trial, score in scores.items()
        if (trial.data, trial.optimizer, trial.pixels) == (data, optimizer, pixels)
    }
    return dict(sorted(found.items(), key=lambda pair: pair[0].rate or 0.0))


def best(found: Mapping[Setting, Score]) -> Best:
    """The one of the lowest loss."""
    return Best(*min(found.items(), key=lambda pair: pair[1].mean))


def best_of(scores: Scores, data: str, optimizers: Iterable[str], pixels: str = "unit") -> Best:
    """The best trial of several optimizers."""
    each = [trials(scores, data, optimizer, pixels) for optimizer in optimizers]
    return min((best(found) for found in each if found), key=lambda found: found.score.mean)


def at_edge(found: Mapping[Setting, Score]) -> bool:
    """Whether a rate beyond those that were tried may be better than any of them."""
    rates = [trial.rate for trial in found]
    return len(rates) > 1 and best(found).trial.rate in (min(rates), max(rates))  # type: ignore[type-var]


COLUMNS = (
    *(name for name in Setting._fields if name != "seed"),
    *("mean", "std", "final", "seeds", "lost", "calls"),
)


def write_csv(path: Path, scores: Scores) -> None:
    """All trials, a line each."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for trial, score in sorted(scores.items(), key=lambda pair: str(pair[0])):
            known = trial._asdict() | score._asdict()
            writer.writerow([shown(known[name]) for name in COLUMNS])


def shown(value: object) -> object:
    """Numbers to five digits; nothing for what there is none of."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return "" if value is None else value
