"""What AutoGrouping is indifferent to, whether it ever blows up, and what more members bring.

``units``: features multiplied by 1e-3 or 1e3, the loss multiplied by 1e-3 or 1e3, the order of
labels and of features permuted, features rotated. Printed is by how much the running and the final
loss differ from those of the data as they are; the largest difference over all cases.

``blowups``: ten seeds, batches of 8 to 1024. Printed is the highest loss that was met after the
first hundredth of a run (as a mean over a hundredth of it), over the loss at the start.

``members``: steps that average 1, 2, 4 and 8 gradients, each of a batch of its own, as many steps
of each. Printed are the running and the final loss over those with one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from benchmarks.problems import CASES, Problem, problem
from benchmarks.quality import available
from benchmarks.results import LOSSES
from benchmarks.rivals import AUTO, Method
from benchmarks.training import Run, in_parallel, train
from gradgroup.torch import AutoGrouping

BATCHES = (8, 32, 128, 512, 1024)
MEMBERS = (1, 2, 4, 8)
DIVERGED = 2.0


def features(factor: float) -> Callable[[Problem], Problem]:
    """The same data in another unit; the penalty with it, so that the optimum stays the same."""
    return lambda p: p._replace(x=factor * p.x, penalty=factor**2 * p.penalty)


def loss(factor: float) -> Callable[[Problem], Problem]:
    return lambda p: p._replace(scale=factor)


def relabelled(p: Problem) -> Problem:
    if p.kind == "classes":
        order = torch.randperm(p.outputs, generator=torch.Generator().manual_seed(1))
        return p._replace(y=order[p.y])
    return p._replace(y=1.0 - p.y if p.kind == "logistic" else -p.y)


def reordered(p: Problem) -> Problem:
    order = torch.randperm(p.x.shape[1], generator=torch.Generator().manual_seed(1))
    return p._replace(x=p.x[:, order])


def rotated(p: Problem) -> Problem:
    generator = torch.Generator().manual_seed(1)
    d = p.x.shape[1]
    return p._replace(x=p.x @ torch.linalg.qr(torch.randn(d, d, generator=generator)).Q)


CHANGES: dict[str, Callable[[Problem], Problem]] = {
    "features × 1e-3": features(1e-3),
    "features × 1e3": features(1e3),
    "loss × 1e-3": loss(1e-3),
    "loss × 1e3": loss(1e3),
    "labels permuted": relabelled,
    "features permuted": reordered,
    "features rotated": rotated,
}


def changed(case: str, change: str | None) -> Run:
    found = problem(case)
    return train(found if change is None else CHANGES[change](found), AUTO)


def with_batch(case: str, batch: int, seed: int, epochs: int) -> Run:
    return train(problem(case), AUTO, batch=batch, seed=seed, epochs=epochs)


def with_members(case: str, members: int, epochs: int) -> Run:
    build = partial(AutoGrouping, members=members)
    method = Method("AutoGrouping", build, shares=members)
    return train(problem(case), method, batch=64 * members, epochs=epochs * members)


def units(cases: Sequence[str], chosen: argparse.Namespace) -> Iterator[str]:
    jobs = [(case, change) for case in cases for change in (None, *CHANGES)]
    runs = dict(zip(jobs, in_parallel(changed, jobs, chosen.workers), strict=True))
    yield f"{'':<18} {'running':>10} {'final':>10}   largest difference, and its case"
    for change in CHANGES:
        apart = {
            case: [
                abs(getattr(runs[case, change], name) / getattr(runs[case, None], name) - 1.0)
                for name in LOSSES
            ]
            for case in cases
        }
        worst = max(apart, key=lambda case: max(apart[case]))
        largest = [max(found[k] for found in apart.values()) for k in range(2)]
        yield f"{change:<18} {largest[0]:>10.2%} {largest[1]:>10.2%}   {worst}"


def blowups(cases: Sequence[str], chosen: argparse.Namespace) -> Iterator[str]:
    jobs = [
        (case, batch, seed, chosen.epochs)
        for case in cases
        for batch in BATCHES
        for seed in range(chosen.seeds)
    ]
    runs = dict(zip(jobs, in_parallel(with_batch, jobs, chosen.workers), strict=True))
    yield f"{'batch':<14} {' '.join(f'{batch:>8}' for batch in BATCHES)}"
    for case in cases:
        highest = [
            max(runs[case, batch, seed, chosen.epochs].highest for seed in range(chosen.seeds))
            for batch in BATCHES
        ]
        yield f"{case:<14} {' '.join(f'{value:>8.2f}' for value in highest)}"
    lost = sum(run.highest > DIVERGED for run in runs.values())
    yield f"Runs that went above {DIVERGED:g}: {lost} of {len(runs)}"


def members(cases: Sequence[str], chosen: argparse.Namespace) -> Iterator[str]:
    jobs = [(case, n, chosen.epochs) for case in cases for n in MEMBERS]
    runs = dict(zip(jobs, in_parallel(with_members, jobs, chosen.workers), strict=True))
    cells = [f"{f'running, {n}':>12} {f'final, {n}':>10}" for n in MEMBERS[1:]]
    yield f"{'':<14} {' '.join(cells)}"
    for case in cases:
        one, cells = runs[case, 1, chosen.epochs], []
        for n in MEMBERS[1:]:
            more = runs[case, n, chosen.epochs]
            cells.append(f"{more.running / one.running:>12.3f} {more.final / one.final:>10.3f}")
        yield f"{case:<14} {' '.join(cells)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks robustness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    studies = {"units": units, "blowups": blowups, "members": members}
    parser.add_argument("what", choices=studies)
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES, metavar="CASE")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    chosen = parser.parse_args(argv)
    for text in studies[chosen.what](available(chosen.cases), chosen):
        print(text, flush=True)
    return 0
