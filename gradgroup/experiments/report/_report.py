"""The report of a study: what was asked, what was found, with every figure.

The idea. A report is a list of blocks; here is what stands in it and in which order. What the
claims have come to stands first, because that is what a reader wants to know; how it was found,
after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gradgroup.experiments.engine import BATCH, GROUPING
from gradgroup.experiments.engine._setting import LOST
from gradgroup.experiments.report._claims import Claim, Evidence, Verdict, judge, over_best
from gradgroup.experiments.report._claims import grouping as paper_score
from gradgroup.experiments.report._document import (
    Block,
    Heading,
    Items,
    Paragraph,
    Picture,
    Table,
    to_html,
    to_markdown,
)
from gradgroup.experiments.report._machine import machine
from gradgroup.experiments.report._measure import VECTORISED
from gradgroup.experiments.report._scores import Score, Scores, best, trials
from gradgroup.experiments.report._tables import HEAD, NUMBERS, rows
from gradgroup.experiments.report._words import TITLES, times
from gradgroup.experiments.study._plans import OWN, SPREADS, Level

PAPER = "[Optimization using Parallel Gradient Evaluations on Multiple Parameters](https://arxiv.org/abs/2302.03161)"
TITLE = "Gradient Grouping: the paper's evaluation, run again"


class Figures(NamedTuple):
    """The figures of a study, as they were saved: SVG and PNG."""

    idea: Picture
    sensitivity: Picture
    members: Picture
    spreads: Picture
    standard: Picture
    epochs: Picture
    seconds: Picture


class Study(NamedTuple):
    """All that a report is made of."""

    level: Level
    evidence: Evidence
    samples: dict[str, int]
    missing: tuple[tuple[str, str], ...]
    """Data sets that are not here, and how to get them."""
    hours: float
    """Of one core, for all runs."""


def write(study: Study, figures: Figures, folder: Path) -> tuple[Path, Path]:
    """Write the page and the text; where they are."""
    blocks = content(study, figures)
    page, text = folder / "report.html", folder / "report.md"
    page.write_text(to_html(blocks, TITLE), encoding="utf-8")
    text.write_text(to_markdown(blocks, folder), encoding="utf-8")
    return page, text


def content(study: Study, figures: Figures) -> list[Block]:
    """The whole report."""
    claims = judge(study.evidence)
    return [
        Heading(1, TITLE),
        Paragraph(opening(study)),
        *of_claims(claims),
        *of_main_figure(study, figures),
        *of_members(figures),
        *of_what_is_left_open(study, figures),
        *of_costs(study, figures),
        *of_settings(study),
    ]


def opening(study: Study) -> str:
    level = study.level
    data = ", ".join(
        f"{TITLES[name]} ({level.epochs_on(name)} epochs)" for name in study.evidence.data
    )
    return (
        f"What the experiments of {PAPER} come to when they are run again: every claim, with a "
        "verdict that follows from a rule, every figure, and what the paper leaves open. Data: "
        f"{data}; {level.seeds} seeds. **{GROUPING}** is the paper's algorithm, Gradient Grouping, "
        "to the letter; `GradientGrouping` is this library's version of it, with a calibrated "
        "start and a safeguard; `AutoGrouping` its own optimizer."
    )


def of_claims(claims: Sequence[Claim]) -> list[Block]:
    table = Table(
        ("Verdict", "The paper says", "Measured"),
        tuple(
            (claim.verdict.value, f"{claim.says}\n**Holds if:** {claim.rule}", claim.found)
            for claim in claims
        ),
    )
    how = (
        f"{counted(claims)} A verdict is “{Verdict.HOLDS.value}” where its rule holds in every "
        f"case there is, “{Verdict.PARTLY.value}” where it does in some."
    )
    return [Heading(2, "The claims"), Paragraph(how), table]


def counted(claims: Sequence[Claim]) -> str:
    """How many claims have come to what.

    >>> claim = Claim("It works.", "It does.", "It did.", Verdict.HOLDS)
    >>> counted([claim, claim, claim._replace(verdict=Verdict.NOT)])
    'Of 3 claims: holds: 2; does not hold: 1.'
    """
    numbers = Counter(claim.verdict for claim in claims)
    told = "; ".join(f"{each.value}: {numbers[each]}" for each in Verdict if numbers[each])
    return f"Of {len(claims)} claims: {told}."


def of_main_figure(study: Study, figures: Figures) -> list[Block]:
    found: list[Block] = [
        Heading(2, "The idea"),
        figures.idea,
        Heading(2, "Sensitivity to the learning rate"),
        figures.sensitivity,
    ]
    for name in study.evidence.data:
        found += [
            Heading(3, TITLES[name]),
            Table(HEAD, tuple(rows(study.evidence.scores, name)), NUMBERS),
        ]
    return [*found, Paragraph(NOTES)]


NOTES = (
    "Loss in training is the paper's measure: the mean over all steps of the loss where "
    "gradients are taken, before the step; ± is the standard deviation over the seeds. Loss at "
    "the end is that of all training samples, at the point that is served. A star means that the "
    "best rate is at an end of those that were tried. L-BFGS takes up to twenty gradients of a "
    "batch where the others take one."
)


def of_members(figures: Figures) -> list[Block]:
    return [Heading(2, "The effect of N"), figures.members]


def of_what_is_left_open(study: Study, figures: Figures) -> list[Block]:
    scores, data, _ = study.evidence
    lines = tuple(standard_sentence(scores, name) for name in data)
    return [
        Heading(2, "What the paper leaves open"),
        Paragraph(
            "How far apart do members start? The paper says “randomly”. Every exact solve brings "
            "members closer together, so that the distance at the start is all a run has to "
            "spend: it is the learning rate in disguise. Do members see the same samples? On a "
            "common batch the noise of their gradients is the same, and the solve sees curvature "
            "instead of noise; another start is best then."
        ),
        figures.spreads,
        Paragraph(
            "How are pixels scaled? In [0, 1] above; here with mean 0 and standard deviation 1. "
            "Without L-BFGS."
        ),
        figures.standard,
        Items(lines),
    ]


def standard_sentence(scores: Scores, name: str) -> str:
    def told(score: Score, what: str = "") -> str:
        return times(over_best(scores, name, score, "standard"), what)

    def ours(optimizer: str) -> str:
        return f"{optimizer} {told(best(trials(scores, name, optimizer, 'standard')).score)}"

    paper, common = (paper_score(scores, name, pixels="standard", common=c) for c in (False, True))
    return (
        f"{TITLES[name]}, standardised: {GROUPING} {told(paper, 'the loss of the best baseline')}, "
        f"on a common batch {told(common)}; {', '.join(map(ours, OWN))}."
    )


def of_costs(study: Study, figures: Figures) -> list[Block]:
    measured = study.evidence.measured.seconds
    seconds = {name: measured[name] for name in study.evidence.data}
    names = list(next(iter(seconds.values())))
    table = Table(
        ("microseconds a step", *(TITLES[name] for name in seconds)),
        tuple((who, *(f"{1e6 * seconds[name][who]:,.0f}" for name in seconds)) for who in names),
        frozenset(range(1, len(seconds) + 1)),
    )
    return [
        Heading(2, "Against epochs, against seconds"),
        figures.epochs,
        figures.seconds,
        Paragraph(
            "Times are those of one run by PyTorch on one thread, members one after the other; "
            f"“{VECTORISED}” is `step_batched`. They are medians of turns that all optimizers "
            "took one after another."
        ),
        table,
    ]


def of_settings(study: Study) -> list[Block]:
    missing = tuple(f"{TITLES[name]}: {how}" for name, how in study.missing)
    found: list[Block] = [
        Heading(2, "Settings"),
        Items(
            (
                "Model: softmax regression without bias, single precision; loss: mean "
                "cross-entropy.",
                f"Batches: {BATCH} samples a step in an order drawn by the seed, the same for all "
                f"optimizers; {GROUPING} gives each of two members one half.",
                "Start: each member's weights drawn as PyTorch initialises a linear layer; a "
                "baseline starts where the first member does.",
                f"{GROUPING}: α = 0.9, ε = 1e-4, nothing else. Spreads tried are multiples of "
                f"that start: {', '.join(f'{s:.2g}' for s in SPREADS)}.",
                "Baselines: PyTorch's, with its defaults; Nesterov with momentum 0.9. Trained as "
                "stacks, which equal `torch.optim` run by run.",
                f"A run whose loss passes {LOST:g} times that of a model that knows nothing has "
                "blown up.",
                f"Level “{study.level.name}”: seeds 0 to {study.level.seeds - 1}; epochs: "
                + ", ".join(f"{TITLES[n]} {study.level.epochs_on(n)}" for n in study.evidence.data)
                + ".",
                "Samples: "
                + ", ".join(f"{TITLES[n]} {k:,}" for n, k in study.samples.items())
                + ".",
                f"All runs took {study.hours:.2f} hours of one core.",
            )
        ),
        Table(("machine", ""), tuple(machine())),
    ]
    if missing:
        found += [Paragraph("Data sets of the paper that are not here:"), Items(missing)]
    return found
