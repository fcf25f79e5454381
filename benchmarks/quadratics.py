"""What each rule of the safeguard does on ½ xᵀAx: how high the loss rises, how soon it falls.

Every variant runs the same problems: four kinds of spectrum, condition numbers up to 1e6, two,
four and eight members, several seeds. Printed are the share of runs whose loss (of the model
or of the members' mean) ever rose above ten times its start, the highest rise, and the steps
until the loss had fallen by 1e6 at condition number 1e4: median, nine tenths, worst.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from gradgroup.core import _guard
from gradgroup.torch import GradientGrouping

NEVER = 10**9


class Variant(NamedTuple):
    """Settings of the optimizer, and constants of the safeguard that are changed."""

    name: str
    settings: dict[str, Any] = {}  # noqa: RUF012 (a constant)
    constants: dict[str, float] = {}  # noqa: RUF012


VARIANTS = (
    Variant("the paper, relative eps", {"safeguard": False, "spread": 0.3}),
    Variant("the paper, own start", {"safeguard": False}),
    Variant("safeguard"),
    Variant("without the short step", {}, {"SHORT_STEP_EVERY": NEVER}),
    Variant("short step every 3rd", {}, {"SHORT_STEP_EVERY": 3}),
    Variant("short step every 30th", {}, {"SHORT_STEP_EVERY": 30}),
    Variant("ceiling that never sinks", {}, {"CEILING_DECAY": 1.0}),
    Variant("ceiling sinks 3 times as fast", {}, {"CEILING_DECAY": 0.997}),
    Variant("without the tilt", {}, {"PARALLEL": 0.0}),
    Variant("tilt from 3 times the angle", {}, {"PARALLEL": 0.09}),
    Variant("alpha = 1", {"alpha": 1.0}),
    Variant("alpha = 0.6", {"alpha": 0.6}),
)


def log_spaced(d: int, kappa: float) -> Tensor:
    return torch.logspace(-torch.log10(torch.tensor(kappa)).item(), 0, d, dtype=torch.float64)


def evenly_spaced(d: int, kappa: float) -> Tensor:
    return torch.linspace(1.0 / kappa, 1.0, d, dtype=torch.float64)


def one_outlier(d: int, kappa: float) -> Tensor:
    values = torch.full((d,), 1.0 / kappa, dtype=torch.float64)
    values[-1] = 1.0
    return values


def two_clusters(d: int, kappa: float) -> Tensor:
    values = torch.ones(d, dtype=torch.float64)
    values[: d // 2] = 1.0 / kappa
    return values


SPECTRA: tuple[Callable[[int, float], Tensor], ...] = (
    log_spaced,
    evenly_spaced,
    one_outlier,
    two_clusters,
)


class Run(NamedTuple):
    """How one run went."""

    kappa: float
    highest: float
    """Of the loss, over its start."""
    steps: int | None
    """Until the loss had fallen by 1e6; None when it had not."""


def run(eigenvalues: Tensor, members: int, seed: int, most: int, settings: dict[str, Any]) -> Run:
    torch.manual_seed(seed)
    x = torch.nn.Parameter(torch.randn(len(eigenvalues), dtype=torch.float64))
    opt = GradientGrouping([x], members=members, **settings)

    def closure() -> Tensor:
        x.grad = None
        loss = 0.5 * (eigenvalues * x * x).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def now() -> float:
        with torch.no_grad():
            return 0.5 * float((eigenvalues * x * x).sum())

    kappa, start, highest = float(1.0 / eigenvalues[0]), now(), 0.0
    for step in range(1, most + 1):
        highest = max(highest, float(opt.step(closure)) / start, now() / start)
        if now() < 1e-6 * start or highest > 1e12:
            return Run(kappa, highest, step if highest <= 1e12 else None)
    return Run(kappa, highest, None)


class Row(NamedTuple):
    """A variant's runs in numbers."""

    variant: str
    runs: int
    above_ten: float
    highest: float
    median: float
    most_of_them: float
    worst: float


def summary(name: str, runs: Sequence[Run]) -> Row:
    steps = sorted(r.steps or float("inf") for r in runs if round(r.kappa) == 10_000)
    return Row(
        variant=name,
        runs=len(runs),
        above_ten=sum(not r.highest <= 10.0 for r in runs) / len(runs),
        highest=max(r.highest for r in runs),
        median=statistics.median_high(steps),
        most_of_them=steps[int(0.9 * (len(steps) - 1))],
        worst=steps[-1],
    )


def measure(variant: Variant, chosen: argparse.Namespace) -> Row:
    problems = itertools.product(SPECTRA, (1e2, 1e4, 1e6), (2, 4, 8), range(chosen.seeds))
    with ExitStack() as changed:
        for name, value in variant.constants.items():
            changed.enter_context(mock.patch.object(_guard, name, value))
        runs = [
            run(
                spectrum(chosen.d, kappa),
                members,
                seed,
                chosen.steps if kappa == 1e4 else 300,
                variant.settings,
            )
            for spectrum, kappa, members, seed in problems
        ]
    return summary(variant.name, runs)


def line(row: Row) -> str:
    return (
        f"{row.variant:<30} {row.above_ten:>9.1%} {row.highest:>9.3g} "
        f"{row.median:>9.0f} {row.most_of_them:>9.0f} {row.worst:>9.0f}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run all variants, print a line for each, and write them where asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks quadratics",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--d", type=int, default=200, help="numbers in x")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000, help="at most, at 1e4")
    parser.add_argument("--csv", help="also write the rows to this file")
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(f"{'':<30} {'over 10x':>9} {'highest':>9} {'median':>9} {'nine 10th':>9} {'worst':>9}")
    rows = []
    for variant in VARIANTS:
        rows.append(measure(variant, chosen))
        print(line(rows[-1]), flush=True)
    if chosen.csv:
        with open(chosen.csv, "w", newline="") as file:
            csv.writer(file).writerows([Row._fields, *rows])
    return 0
