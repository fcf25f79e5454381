"""AutoGrouping beside the best-tuned and the tuning-free optimizers, on fifteen convex problems.

What is compared, for the same number of sample gradients: the mean running loss (the loss where
the gradient is taken, before the step), and the loss of all samples at the end, at the point that
is served. Both are divided by those of the best rival of the case. The learning rates of SGD,
Nesterov, RMSprop and Adam are a factor √10 apart; of at least seven of them the best is chosen for
each case and each of the two losses, and the grid is widened until it is not at an end.

Runs that are done are kept in a file, so that the same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from benchmarks.problems import CASES, OTHERS, problem
from benchmarks.results import LOSSES, geometric, write_csv
from benchmarks.rivals import AUTO, RIVALS, Method, missing
from benchmarks.training import Run, in_parallel, train
from gradgroup.experiments.datasets import MissingDataError

METHODS = {method.name: method for method in (AUTO, *RIVALS)}
WIDTH = 7
WIDEST = 21


class Job(NamedTuple):
    """One run to do."""

    case: str
    method: str
    rate: float | None
    seed: int
    epochs: int
    batch: int


class Store:
    """The runs that are done, a line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # What follows the last newline was cut off while it was written.
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if whole != lines:
            path.write_text("".join(whole))
        found = [json.loads(line) for line in whole]
        self.runs = {Job(*job): Run(*run) for job, run in found}

    def add(self, job: Job, run: Run) -> None:
        self.runs[job] = run
        with self.path.open("a") as file:
            file.write(json.dumps([job, run]) + "\n")


def do(job: Job) -> Run:
    settings = {"seed": job.seed, "batch": job.batch, "epochs": job.epochs}
    return train(problem(job.case), METHODS[job.method], job.rate, **settings)


def do_all(jobs: Iterable[Job], store: Store, workers: int) -> None:
    """The runs that are not done yet."""
    todo = sorted({job for job in jobs if job not in store.runs}, key=lambda job: job.case)
    found = in_parallel(do, [(job,) for job in todo], workers)
    for job, run in zip(todo, found, strict=True):
        store.add(job, run)


# Grids of learning rates.


class Trial(NamedTuple):
    """A method on a case, at all of its rates."""

    case: str
    method: Method
    low: int = -(WIDTH // 2)
    high: int = WIDTH // 2

    @property
    def rates(self) -> list[float | None]:
        if self.method.centre is None:
            return [None]
        return [self.method.centre * 10 ** (k / 2) for k in range(self.low, self.high + 1)]

    def jobs(self, seeds: Sequence[int], epochs: int, batch: int) -> list[Job]:
        return [
            Job(self.case, self.method.name, rate, seed, epochs, batch)
            for rate in self.rates
            for seed in seeds
        ]


def widened(trial: Trial, scores: Sequence[Sequence[float]]) -> Trial:
    """The trial with a rate more at every end where one of the losses is at its best."""
    bests = [column.index(min(column)) for column in scores]
    wide = trial.high - trial.low + 1
    if trial.method.centre is None or wide >= WIDEST:
        return trial
    low, high = min(bests) == 0, max(bests) == wide - 1
    return trial._replace(low=trial.low - 2 * low, high=trial.high + 2 * high)


def scores(trial: Trial, store: Store, seeds: Sequence[int], epochs: int, batch: int) -> Any:
    """For either loss, its mean over the seeds at each rate."""
    jobs = trial.jobs(seeds, epochs, batch)
    runs = [store.runs[job] for job in jobs]
    grouped = [runs[k : k + len(seeds)] for k in range(0, len(runs), len(seeds))]
    return [[fmean(getattr(r, loss) for r in group) for group in grouped] for loss in LOSSES]


def settle(chosen: argparse.Namespace, cases: Sequence[str], store: Store) -> list[Trial]:
    """Find for every trial the grid that has the best rates within it."""
    trials = [Trial(case, method) for case in cases for method in METHODS.values()]
    runs = (range(chosen.seeds), chosen.epochs, chosen.batch)
    while True:
        do_all([job for trial in trials for job in trial.jobs(*runs)], store, chosen.workers)
        wider = [widened(trial, scores(trial, store, *runs)) for trial in trials]
        if wider == trials:
            return trials
        trials = wider


# What came out.


class Row(NamedTuple):
    """A method's result on a case, in one of the two losses."""

    case: str
    method: str
    loss: str
    rate: float | None
    """The best of its rates."""
    mean: float
    std: float
    ratio: float
    """To the best rival of the case."""


def rows(trials: Sequence[Trial], store: Store, chosen: argparse.Namespace) -> list[Row]:
    seeds = list(range(chosen.seeds))
    found = []
    for trial in trials:
        table = scores(trial, store, seeds, chosen.epochs, chosen.batch)
        for loss, means in zip(LOSSES, table, strict=True):
            k = means.index(min(means))
            rate = trial.rates[k]
            jobs = [j for j in trial.jobs(seeds, chosen.epochs, chosen.batch) if j.rate == rate]
            std = spread([getattr(store.runs[j], loss) for j in jobs])
            found.append(Row(trial.case, trial.method.name, loss, rate, means[k], std, math.nan))
    return with_ratios(found)


def spread(values: Sequence[float]) -> float:
    """Standard deviation; NaN where a run blew up."""
    if not all(map(math.isfinite, values)):
        return math.nan
    return stdev(values) if len(values) > 1 else 0.0


def with_ratios(found: Sequence[Row]) -> list[Row]:
    best: dict[tuple[str, str], float] = defaultdict(lambda: math.inf)
    for row in found:
        if row.method != AUTO.name:
            best[row.case, row.loss] = min(best[row.case, row.loss], row.mean)
    return [row._replace(ratio=row.mean / best[row.case, row.loss]) for row in found]


def summary(found: Sequence[Row]) -> str:
    """Worst ratio and geometric mean of every method, for either loss."""
    lines = [f"{'':<22} {'running loss':>24} {'final loss':>24}"]
    lines.append(f"{'':<22} {'worst':>12} {'geo. mean':>11} {'worst':>12} {'geo. mean':>11}")
    for name in METHODS:
        cells = []
        for loss in LOSSES:
            ratios = [row.ratio for row in found if (row.method, row.loss) == (name, loss)]
            cells += [f"{max(ratios):>12.3f}", f"{geometric(ratios):>11.3f}"]
        lines.append(f"{name:<22} {' '.join(cells)}")
    return "\n".join(lines)


def by_case(found: Sequence[Row]) -> str:
    """AutoGrouping's ratio on each case, and which rival it is to."""
    lines = [f"{'':<14} {'running':>8} {'best rival':<36} {'final':>8} best rival"]
    for case in dict.fromkeys(row.case for row in found):
        cells = []
        for loss in LOSSES:
            here = [row for row in found if (row.case, row.loss) == (case, loss)]
            ours = next(row for row in here if row.method == AUTO.name)
            best = min((r for r in here if r.method != AUTO.name), key=lambda row: row.mean)
            cells += [f"{ours.ratio:>8.3f}", f"{f'{best.method} {best.mean:.4g}':<36}"]
        lines.append(f"{case:<14} {' '.join(cells)}".rstrip())
    return "\n".join(lines)


def plot(found: Sequence[Row], path: Path) -> None:
    """Performance profiles: the share of cases in which a method is within a ratio of the best."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, loss, title in zip(axes, LOSSES, ("Running loss", "Final loss"), strict=True):
        axis.set(xscale="log", xlim=(0.5, 10), xlabel="Ratio to the best rival of the case")
        axis.set_title(f"{title}: share of the cases within a ratio", fontsize=10, loc="left")
        axis.axvline(1.0, color="0.8", linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.set_major_formatter("{x:g}")
        for number, name in enumerate(METHODS):
            ratios = sorted(row.ratio for row in found if (row.method, row.loss) == (name, loss))
            shares = [(k + 1) / len(ratios) for k in range(len(ratios))]
            draw_profile(axis, name, ratios, shares, number)
    axes[0].set_ylabel("Share of the cases")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    figure.savefig(path, dpi=150)


# Okabe–Ito, then the same dashed; AutoGrouping is black.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def draw_profile(
    axis: Any, name: str, ratios: Sequence[float], shares: Sequence[float], number: int
) -> None:
    axis.step(
        [0.1, *ratios, 1e6],
        [0.0, *shares, shares[-1]],
        where="post",
        label=name,
        color=COLOURS[number % len(COLOURS)],
        linestyle="-" if number < len(COLOURS) else "--",
        linewidth=2.5 if number == 0 else 1.4,
        zorder=3 if number == 0 else 2,
    )


def available(cases: Sequence[str]) -> list[str]:
    """The cases whose data are here; says which are not."""
    found = []
    for case in cases:
        try:
            problem(case)
            found.append(case)
        except MissingDataError as error:
            print(f"{case} is left out. {error}", file=sys.stderr)
    return found


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m benchmarks quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = (*CASES, *OTHERS)
    found.add_argument("--cases", nargs="+", default=CASES, choices=known, metavar="CASE")
    found.add_argument("--others", action="store_true", help="ten small or odd problems instead")
    found.add_argument("--seeds", type=int, default=3)
    found.add_argument("--epochs", type=int, default=5)
    found.add_argument("--batch", type=int, default=64)
    found.add_argument("--workers", type=int, default=2, help="processes")
    found.add_argument("--store", type=Path, default=Path("runs", "quality.jsonl"))
    found.add_argument("--csv", type=Path, help="also write the table to this file")
    found.add_argument("--figure", type=Path, help="also draw performance profiles")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is not done yet, print the tables, write them where asked."""
    command = parser()
    chosen = command.parse_args(argv)
    if missing():
        names = ", ".join(missing())
        command.error(f"{names} not installed: pip install -e '.[rivals]' -c constraints.txt.")
    store = Store(chosen.store)
    trials = settle(chosen, available(OTHERS if chosen.others else chosen.cases), store)
    found = rows(trials, store, chosen)
    print(by_case(found), "", summary(found), sep="\n")
    if chosen.csv:
        write_csv(chosen.csv, found)
    if chosen.figure:
        plot(found, chosen.figure)
    return 0
