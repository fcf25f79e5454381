"""What the figures of a study show: curves and lines, from its scores.

The idea. Each function says what one figure has in its panels, one panel a data set; how it is
drawn is the business of ``gradgroup.experiments.figures``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gradgroup.experiments.engine import BATCH, GROUPING
from gradgroup.experiments.figures import Curve, Line, Panel
from gradgroup.experiments.report._claims import grouping, of_members
from gradgroup.experiments.report._scores import Best, Score, Scores, best, best_of, trials
from gradgroup.experiments.report._tables import contestants
from gradgroup.experiments.study._plans import BASELINES, HALF, MEMBERS, OWN, SPREADS


def curve(name: str, x: Iterable[float], scores: Iterable[Score]) -> Curve:
    found = list(scores)
    std = (0.0 if math.isnan(score.std) else score.std for score in found)
    return Curve(name, tuple(x), tuple(score.mean for score in found), tuple(std))


def line(name: str, score: Score) -> Line:
    return Line(name, score.mean, 0.0 if math.isnan(score.std) else score.std)


def own_lines(scores: Scores, data: str, pixels: str = "unit") -> list[Line]:
    """Our own optimizers."""
    return [line(name, best(trials(scores, data, name, pixels)).score) for name in OWN]


def sensitivity(scores: Scores, data: str, heading: str, pixels: str = "unit") -> Panel:
    """Baselines against their learning rate, and what needs none."""
    curves = [
        curve(name, (trial.rate or 0.0 for trial in found), found.values())
        for name in BASELINES
        if (found := trials(scores, data, name, pixels))
    ]
    paper = line(GROUPING, grouping(scores, data, pixels=pixels))
    return Panel(heading, tuple(curves), (paper, *own_lines(scores, data, pixels)))


def rival_line(scores: Scores, data: str) -> Line:
    """The best baseline at its best rate."""
    rival = best_of(scores, data, BASELINES)
    return line("best baseline, best rate", rival.score)


def members(scores: Scores, data: str, heading: str) -> Panel:
    """The effect of N."""
    curves = (
        curve("32 samples for each member", MEMBERS, of_members(scores, data, lambda n: HALF)),
        curve("64 samples for all", MEMBERS, of_members(scores, data, lambda n: BATCH // n)),
    )
    auto = line("AutoGrouping", best(trials(scores, data, "AutoGrouping")).score)
    return Panel(heading, curves, (rival_line(scores, data), auto))


def spreads(scores: Scores, data: str, heading: str) -> Panel:
    """The effect of how far apart the members start, and of whether they see the same samples."""
    kinds = {
        "own samples, 32 + 32": (HALF, False),
        "the same 32 samples": (HALF, True),
        "the same 64 samples": (BATCH, True),
    }
    curves = [
        curve(name, SPREADS, (grouping(scores, data, spread=s, batch=b, common=c) for s in SPREADS))
        for name, (b, c) in kinds.items()
    ]
    return Panel(heading, tuple(curves), (rival_line(scores, data), *own_lines(scores, data)))


def progress(
    scores: Scores, data: str, heading: str, seconds: Mapping[str, float] | None = None
) -> Panel:
    """Every optimizer at its best rate, epoch by epoch; against seconds where those are given."""
    curves = [
        _epochs(found, 1.0 if seconds is None else seconds[found.trial.optimizer])
        for found in contestants(scores, data)
        if found.score.epochs
    ]
    return Panel(heading, tuple(curves), ())


def _epochs(found: Best, unit: float) -> Curve:
    losses = found.score.epochs
    x = tuple(unit * (k + 1) for k in range(len(losses)))
    return Curve(found.trial.optimizer, x, losses, (0.0,) * len(losses))
