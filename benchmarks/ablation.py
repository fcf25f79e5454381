"""What each ingredient of AutoGrouping is worth, and what its constants do when they are 3× off.

Every variant trains the fifteen problems of ``quality``, one run each. Printed are its losses over
those of the rule as it is: geometric mean and worst case.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.problems import CASES, OTHERS, problem
from benchmarks.quality import available
from benchmarks.results import LOSSES, geometric, write_csv
from benchmarks.rivals import Method
from benchmarks.training import Run, in_parallel, train
from benchmarks.variants import Rule, Variant

INGREDIENTS = {
    "the rule": Rule(),
    "no metric": Rule(metric="one"),
    "metric v instead of √v": Rule(exponent=1.0),
    "metric v^(1/4)": Rule(exponent=0.25),
    "noise from squares, not differences": Rule(metric="squares"),
    "no averaging of the gradients' point (β = 0)": Rule(beta=0.0),
    "gradients at the average (β = 1)": Rule(beta=1.0),
    "equal weights (a = 0)": Rule(power=0.0),
    "reach grows without approval": Rule(reach="always"),
    "reach shrinks without approval": Rule(reach="shrinking"),
    "steps not capped": Rule(cap=False),
    "a probe on the first batch": Rule(probe="start"),
    "probes in every eighth step": Rule(probe="steps"),
    "two members of half a batch": Rule(spread=1e-9),
    "two members, spread towards the scout": Rule(spread=1.0),
}
THREE = {
    "√2, the factor": {k: Rule(factor=math.sqrt(2.0) * 3.0**k) for k in (-1.0, -0.5, 0.5, 1.0)},
    "1 − β": {k: Rule(beta=1.0 - 0.1 * 3.0**k) for k in (-1.0, -0.5, 0.5, 1.0)},
    "weights' power a": {k: Rule(power=3.0**k) for k in (-1.0, -0.5, 0.5, 1.0)},
    "verdict's power": {k: Rule(verdict_power=3.0 * 3.0**k) for k in (-1.0, -0.5, 0.5, 1.0)},
    "first part of the loss": {k: Rule(first_part=0.5 * 3.0**k) for k in (-1.0, -0.5, 0.5, 1.0)},
}


class Row(NamedTuple):
    """A variant's losses over those of the rule."""

    what: str
    times: float
    """What the constant is multiplied with; 1 where an ingredient is changed."""
    running: float
    running_worst: float
    final: float
    final_worst: float


def run(rule: Rule, case: str, seed: int, batch: int) -> Run:
    shares = 2 if rule.spread else 1
    again = rule.probe != "none"
    method = Method("variant", partial(Variant, rule=rule), shares=shares, again=again)
    return train(problem(case), method, seed=seed, batch=batch)


def row(what: str, times: float, runs: Sequence[Run], base: Sequence[Run]) -> Row:
    cells: list[float] = []
    for loss in LOSSES:
        pairs = zip(runs, base, strict=True)
        ratios = [getattr(r, loss) / getattr(b, loss) for r, b in pairs]
        cells += [geometric(ratios), max(ratios)]
    return Row(what, times, *cells)


def plot(rows: Sequence[Row], path: Path) -> None:
    """One panel for each constant."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.4), layout="constrained")
    for axis, what in zip(figure.subplots(1, len(THREE), sharey=True), THREE, strict=True):
        here = sorted((r for r in rows if r.what in (what, "the rule")), key=lambda r: r.times)
        axis.set(xscale="log", yscale="log", xlabel="times", ylim=(0.7, 5))
        axis.set_title(what, fontsize=10, loc="left")
        axis.axhline(1.0, color="0.8", linewidth=0.8)
        for loss, colour in (("running", "#D55E00"), ("final", "#0072B2")):
            x = [r.times for r in here]
            axis.plot(x, [getattr(r, loss) for r in here], "o-", color=colour, label=f"{loss} loss")
            worst = [getattr(r, f"{loss}_worst") for r in here]
            axis.plot(x, worst, "o:", color=colour, label=f"{loss} loss, worst case")
        axis.set_xticks([1 / 3, 1, 3], ["1/3", "1", "3"])
        axis.set_yticks([0.7, 1, 2, 5], ["0.7", "1", "2", "5"])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    figure.supylabel("Loss over that of the rule", fontsize=10)
    figure.savefig(path, dpi=150)


def line(found: Row) -> str:
    times = "" if found.times == 1.0 else f"× {found.times:.2f}"
    return (
        f"{found.what:<46} {times:<7} {found.running:>8.3f} {found.running_worst:>8.3f} "
        f"{found.final:>8.3f} {found.final_worst:>8.3f}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run all variants, print a line for each, and write them where asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks ablation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cases", nargs="+", default=CASES, choices=(*CASES, *OTHERS), metavar="CASE"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--csv", type=Path, help="also write the table to this file")
    parser.add_argument("--figure", type=Path, help="also draw what the constants do")
    chosen = parser.parse_args(argv)
    cases = available(chosen.cases)
    variants: list[tuple[str, float, Rule]] = [(n, 1.0, rule) for n, rule in INGREDIENTS.items()]
    variants += [(n, 3.0**k, rule) for n, rules in THREE.items() for k, rule in rules.items()]
    runs = all_runs([rule for _, _, rule in variants], cases, chosen)
    rows = []
    print(f"{'':<54} {'running':>8} {'worst':>8} {'final':>8} {'worst':>8}")
    for (what, times, _), mine in zip(variants, runs, strict=True):
        rows.append(row(what, times, mine, runs[0]))
        print(line(rows[-1]), flush=True)
    if chosen.csv:
        write_csv(chosen.csv, rows)
    if chosen.figure:
        plot(rows, chosen.figure)
    return 0


def all_runs(rules: Sequence[Rule], cases: Sequence[str], chosen: Any) -> list[list[Run]]:
    """The runs of every rule on every case; the cases take turns, each loaded once a process."""
    jobs = [(rule, case, chosen.seed, chosen.batch) for case in cases for rule in rules]
    found = list(in_parallel(run, jobs, chosen.workers))
    return [found[k :: len(rules)] for k in range(len(rules))]
