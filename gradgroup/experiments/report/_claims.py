"""The paper's claims, one by one: what it says, what was measured, and whether it holds.

The idea. A verdict follows from a rule that is written beside it, with a number in it, before
anything is measured. Whoever finds the number wrong sees what to put in its place.

Conventions. "Loss" is the paper's: the mean over all of training of the loss where gradients are
taken. A ratio of losses is of means over the seeds. What was measured has a line for each data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from gradgroup.experiments.engine import BATCH, GROUPING, Setting
from gradgroup.experiments.report._measure import FIRST_ORDER, HALF_BATCH, VECTORISED, Measured
from gradgroup.experiments.report._scores import Best, Score, Scores, best, best_of, trials
from gradgroup.experiments.report._words import BLEW_UP, TITLES, loss, ratio, span, times
from gradgroup.experiments.study._plans import BASELINES, HALF, MEMBERS, OWN, PAPER_SPREAD

# "Nearly the same" and "about as much" are within a tenth.
NEAR = 1.1
# A loss that is half as high again has deteriorated significantly.
WORSE = 1.5
# A step at condition number 1 arrives, to rounding, when f has fallen by this.
ARRIVED = 1e-20


class Verdict(Enum):
    """What a claim has come to."""

    HOLDS = "holds"
    PARTLY = "holds partly"
    NOT = "does not hold"
    OPEN = "cannot be told"


class Claim(NamedTuple):
    """A claim and what became of it."""

    says: str
    """What the paper says."""
    rule: str
    """When it counts as true."""
    found: str
    """What was measured."""
    verdict: Verdict


class Evidence(NamedTuple):
    """What the claims are judged by."""

    scores: Scores
    data: tuple[str, ...]
    measured: Measured


def judge(evidence: Evidence) -> list[Claim]:
    """All claims, in the order of the paper."""
    return [claim(evidence) for claim in CLAIMS]


def of_all(are_true: Iterable[bool]) -> Verdict:
    """True of all, of some, of none; of nothing at all there is no telling."""
    found = list(are_true)
    if not found:
        return Verdict.OPEN
    return Verdict.HOLDS if all(found) else Verdict.PARTLY if any(found) else Verdict.NOT


def each(data: Sequence[str], told: Callable[[str], str]) -> str:
    """A line for each data set."""
    return "\n".join(f"**{TITLES[name]}:** {told(name)}." for name in data)


# Finding scores.


def grouping(
    scores: Scores,
    data: str,
    *,
    members: int = 2,
    batch: int = HALF,
    spread: float = PAPER_SPREAD,
    common: bool = False,
    pixels: str = "unit",
) -> Score:
    """The paper's algorithm to the letter."""
    like = {"members": members, "batch": batch, "spread": spread, "common": common}
    found = trials(scores, data, GROUPING, pixels)
    return next(
        score
        for trial, score in found.items()
        if trial._replace(**like) == trial  # type: ignore[arg-type]
    )


def of_members(scores: Scores, data: str, batch: Callable[[int], int]) -> list[Score]:
    """The same with N = 2, 4, 6, 8, 10 members."""
    return [grouping(scores, data, members=n, batch=batch(n)) for n in MEMBERS]


def over_best(scores: Scores, data: str, score: Score, pixels: str = "unit") -> float:
    """A loss over that of the best baseline at its best rate."""
    rivals = [name for name in BASELINES if trials(scores, data, name, pixels)]
    return score.mean / best_of(scores, data, rivals, pixels).score.mean


# The claims.


def near_the_best(evidence: Evidence) -> Claim:
    scores, data, _ = evidence
    ratios = {name: over_best(scores, name, grouping(scores, name)) for name in data}

    def told(name: str) -> str:
        rival = best_of(scores, name, BASELINES)
        return times(ratios[name], f"the loss of the best baseline ({at_its_rate(rival)})")

    found = each(data, told)
    return Claim(
        "Without any tuning, with 2 members of 32 samples each, it achieves nearly the same "
        "performance as optimally tuned baselines, on all data sets.",
        f"Its loss is at most {NEAR:g} × that of the best baseline at its best rate.",
        f"{found}\n{also_ours(evidence)}",
        of_all(each_one <= NEAR for each_one in ratios.values()),
    )


def at_its_rate(found: Best) -> str:
    if not math.isfinite(found.score.mean):
        return f"all {BLEW_UP}"
    return f"{found.trial.optimizer} at {found.trial.rate:.2g}"


def also_ours(evidence: Evidence) -> str:
    """What of the claim is true of our own optimizers."""
    scores, data, _ = evidence
    told = []
    for optimizer in OWN:
        ratios = [
            over_best(scores, name, best(trials(scores, name, optimizer)).score) for name in data
        ]
        told.append(f"{optimizer} {span(ratios)}")
    return f"**Our own,** over the best baseline: {', '.join(told)}."


def matched_by_baselines(evidence: Evidence) -> Claim:
    scores, data, _ = evidence
    ratios = {
        (name, rival): best(trials(scores, name, rival)).score.mean / grouping(scores, name).mean
        for name in data
        for rival in BASELINES
    }

    def told(name: str) -> str:
        if not math.isfinite(grouping(scores, name).mean):
            return f"{GROUPING} {BLEW_UP}"
        return f"each at its best over {GROUPING}: {span([ratios[name, r] for r in BASELINES])}"

    return Claim(
        "There is a learning rate with which each baseline achieves the same performance.",
        f"Each baseline's loss at its best rate is at most {NEAR:g} × that of {GROUPING}.",
        each(data, told),
        of_all(each_one <= NEAR for each_one in ratios.values()),
    )


def sensitive(evidence: Evidence) -> Claim:
    scores, data, _ = evidence
    off = {
        (name, rival): ten_times_off(trials(scores, name, rival))
        for name in data
        for rival in BASELINES
    }

    def told(name: str) -> str:
        return ", ".join(f"{rival} {off_shown(off[name, rival])}" for rival in BASELINES)

    return Claim(
        "The baselines are particularly sensitive to the learning rate, and deteriorate "
        "significantly when it is not the optimal one.",
        f"At a rate ten times off its best one, to the worse side, a baseline's loss is at least "
        f"{WORSE:g} × as high.",
        each(data, told),
        of_all(each_one >= WORSE for each_one in off.values() if not math.isnan(each_one)),
    )


def off_shown(off: float) -> str:
    return f"{BLEW_UP} at every rate" if math.isnan(off) else times(off)


def ten_times_off(found: dict[Setting, Score]) -> float:
    """The worse of a rate ten times too large and ten times too small, over the best.

    Infinite where that blew up, NaN where there is no best one because all did.
    """
    top = best(found)
    assert top.trial.rate is not None
    wanted = (math.log10(top.trial.rate) - 1.0, math.log10(top.trial.rate) + 1.0)
    off = [
        score.mean
        for trial, score in found.items()
        if trial.rate is not None
        and any(math.isclose(math.log10(trial.rate), there, abs_tol=1e-6) for there in wanted)
    ]
    return max(off) / top.score.mean


def best_rates_differ(evidence: Evidence) -> Claim:
    scores, data, _ = evidence
    tops = {rival: [best(trials(scores, name, rival)) for name in data] for rival in BASELINES}
    rates = {
        rival: [top.trial.rate if math.isfinite(top.score.mean) else None for top in found]
        for rival, found in tops.items()
    }
    told = ", ".join(f"{rival} {' / '.join(map(rate_shown, rates[rival]))}" for rival in BASELINES)
    known = [[rate for rate in found if rate is not None] for found in rates.values()]
    return Claim(
        "The optimal learning rates of the baselines vary across data sets.",
        "A baseline's best rates on two of the data sets are a factor of at least √10 apart, the "
        "distance of the rates that were tried.",
        f"On {' / '.join(TITLES[name] for name in data)}: {told}.",
        of_all(len(set(found)) > 1 for found in known if len(found) > 1),
    )


def rate_shown(rate: float | None) -> str:
    return BLEW_UP if rate is None else f"{rate:.2g}"


def more_members_help(evidence: Evidence) -> Claim:
    scores, data, _ = evidence
    more = {name: of_members(scores, name, lambda n: HALF) for name in data}
    same = {name: of_members(scores, name, lambda n: BATCH // n) for name in data}

    def losses(found: Sequence[Score]) -> str:
        return ", ".join(loss(score.mean, 3) for score in found)

    def told(name: str) -> str:
        return f"{losses(more[name])} (with 64 samples in all: {losses(same[name])})"

    steps = [
        math.isfinite(after.mean) and after.mean <= before.mean
        for found in more.values()
        for before, after in pairwise(found)
    ]
    return Claim(
        "Performance improves consistently with the number of members (2, 4, 6, 8, 10).",
        "With 32 samples for every member, each loss is at most that with two members fewer.",
        each(data, told),
        of_all(steps),
    )


def no_more_time(evidence: Evidence) -> Claim:
    seconds = {name: evidence.measured.seconds[name] for name in evidence.data}
    ratios = {
        name: [found[GROUPING] / found[rival] for rival in FIRST_ORDER]
        for name, found in seconds.items()
    }

    def told(name: str) -> str:
        found = seconds[name]
        parallel = found[GROUPING] - found[HALF_BATCH]
        return (
            f"{span(ratios[name])} × a first-order baseline's step one after the other, "
            f"{ratio(found[VECTORISED] / found['SGD'])} × SGD's in one pass, about "
            f"{ratio(parallel / found['SGD'])} × SGD's if both gradients were taken at the same "
            "time"
        )

    return Claim(
        "It uses neither more wall time nor more compute than the baselines.",
        f"A step of 2 × 32 samples takes at most {NEAR:g} × the time of a first-order baseline's "
        "of 64, on one thread.",
        f"Sample gradients in a step: {BATCH} for both.\n{each(evidence.data, told)}",
        of_all(each_one <= NEAR for found in ratios.values() for each_one in found),
    )


def little_memory(evidence: Evidence) -> Claim:
    memory = evidence.measured.memory
    told = ", ".join(f"{name} {numbers:.1f}" for name, numbers in memory.items())
    found = f"Numbers for each of the model's, at the peak, model and gradient included: {told}."
    known = [memory[GROUPING] <= 4.0 * memory["SGD"]] if math.isfinite(memory["SGD"]) else []
    return Claim(
        "Its memory is of the same order as gradient descent's: each processor stores one member "
        "and its gradient.",
        "With 2 members, peak memory is at most 4 × that of SGD, which is 2 × for every member.",
        found if known else "The system does not tell the memory of a process.",
        of_all(known),
    )


def one_step(evidence: Evidence) -> Claim:
    left = evidence.measured.one_step
    return Claim(
        "On a quadratic function of condition number 1 it converges in one step, whatever the "
        "dimension and the number of members.",
        f"With α = 1, f falls by a factor of at least {1 / ARRIVED:.0e} in one step; minima "
        "anywhere, 2 to 100,000 dimensions, 2 to 10 members.",
        f"In the worst of twelve cases f fell to {left:.0e} of what it was.",
        of_all([left <= ARRIVED]),
    )


def nothing_to_tune(evidence: Evidence) -> Claim:
    scores, data, _ = evidence

    def losses(name: str) -> list[float]:
        found = trials(scores, name, GROUPING)
        return [
            score.mean
            for trial, score in found.items()
            if trial.members == 2 and trial.batch == HALF and not trial.common
        ]

    def told(name: str) -> str:
        least, paper = min(losses(name)), grouping(scores, name).mean
        other = times(median(losses(name)) / least, "that")
        return f"{times(paper / least, 'the loss of the best spread tried')} (the median: {other})"

    def holds(name: str) -> bool:
        paper = grouping(scores, name).mean
        return math.isfinite(paper) and paper <= NEAR * min(losses(name))

    return Claim(
        "It is robust to hyper-parameters: nothing had to be tuned on any data set.",
        f"With members that start as PyTorch initialises a layer, the loss is at most {NEAR:g} × "
        "that with the best of the spreads tried: how far apart members start is a number of its "
        "own, which the paper does not mention.",
        each(data, told),
        of_all(map(holds, data)),
    )


CLAIMS: tuple[Callable[[Evidence], Claim], ...] = (
    near_the_best,
    matched_by_baselines,
    sensitive,
    best_rates_differ,
    nothing_to_tune,
    no_more_time,
    more_members_help,
    little_memory,
    one_step,
)
