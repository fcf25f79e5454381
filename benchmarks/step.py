"""How long a step takes beside the gradients, against Adam and against the memory's speed.

A step of N members reads the members and their gradients for the two Gram matrices (2·N·d
numbers), reads them again and writes the members (3·N·d): 5·N·d numbers are the floor. The
bandwidth is measured in the same run by ``a += s·b`` over N·d numbers, which moves 3·N·d.
Adam steps over the same N·d numbers. All candidates take turns, and medians are compared.

``memory/Nd`` is what the process's peak rises by over building the optimizer and three rounds:
2 are the members and their gradients; Adam's two moments over N·d are 2 as well.

``--auto`` measures AutoGrouping, whose step takes one gradient, against Adam over d numbers.

``step`` is what follows once the gradients lie in their rows: solve, move, publish. ``take``
is what it costs to get them there from a model's ``.grad``, N times.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import torch

from gradgroup.core import Guard
from gradgroup.experiments.report import peak_of_memory
from gradgroup.torch import AutoGrouping, GradientGrouping

SIZES = (1_000, 7_840, 100_000, 1_000_000, 10_000_000)
MEMBERS = (2, 4, 8)


class Row(NamedTuple):
    """Medians in microseconds, for N members of d numbers."""

    d: int
    members: int
    step: float
    take: float
    adam_fused: float
    adam_foreach: float
    floor: float
    memory: float
    """Peak memory beyond the model and its gradient, in numbers for each of the N·d."""

    @property
    def over_fused(self) -> float:
        return self.step / self.adam_fused

    @property
    def over_floor(self) -> float:
        return self.step / self.floor


def medians(
    candidates: dict[str, Callable[[], object]], turns: int, burst: int
) -> dict[str, float]:
    """Median times in microseconds; the candidates take turns, so that noise is shared.

    What is short takes its turns in bursts: called one by one among each other, all of them find
    the processor's caches full of the others' code, and take nearly twice as long.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(turns + 2):
        for name, run in candidates.items():
            for _ in range(burst):
                start = time.perf_counter()
                run()
                if turn >= 2:
                    times[name].append(time.perf_counter() - start)
    return {name: 1e6 * statistics.median(found) for name, found in times.items()}


class Group:
    """An optimizer whose gradients are there already."""

    def __init__(self, d: int, members: int) -> None:
        self.p = torch.nn.Parameter(torch.randn(d))
        self.opt = GradientGrouping([self.p], members=members, spread=0.1)
        self.grads = [torch.randn(d) for _ in range(members)]
        self.losses = [1.0] * members
        self.round()
        # The gradients never change, so let the members not move: together, they would be solved
        # for with more digits, and more slowly.
        (solve,) = self.opt._solves
        solve.guard = Guard(curvature=1e12)

    def take(self) -> None:
        """A round without its end: every member entered, left, and its gradients taken."""
        for member, grad in zip(self.opt.members(), self.grads, strict=True):
            self.p.grad = grad
            member.loss = 1.0

    def round(self) -> None:
        self.take()
        self.opt.step()

    def step(self) -> None:
        """What follows once all gradients lie in their rows."""
        self.opt._losses = list(self.losses)
        with torch.no_grad():
            self.opt._close()
            self.opt._finish()


class Trajectory:
    """AutoGrouping, whose gradient is there already."""

    def __init__(self, d: int) -> None:
        self.p = torch.nn.Parameter(torch.randn(d))
        self.opt = AutoGrouping([self.p])
        self.grads = [torch.randn(d) for _ in range(3)]
        self.turn = 0
        for _ in range(100):  # by then it looks at its distance from the start in every fourth step
            self.round()

    def take(self) -> None:
        """A round without its end."""
        self.turn += 1
        for member in self.opt.members():
            self.p.grad = self.grads[self.turn % 3]
            member.loss = 1.0

    def round(self) -> None:
        self.take()
        self.opt.step()

    def step(self) -> None:
        """What follows once the gradient has been taken."""
        self.opt._losses = [1.0]
        with torch.no_grad():
            self.opt._finish()


class AutoRow(NamedTuple):
    """Medians in microseconds, for d numbers."""

    d: int
    step: float
    take: float
    adam_fused: float
    adam_foreach: float
    memory: float
    """Peak memory beyond the model and its gradient, in numbers for each of the d."""

    @property
    def over_fused(self) -> float:
        return self.step / self.adam_fused

    @property
    def whole_over_fused(self) -> float:
        return (self.step + self.take) / self.adam_fused


def measure_auto(d: int, turns: int) -> AutoRow:
    """AutoGrouping and Adam at one size."""
    trajectory = Trajectory(d)
    found = medians(
        {
            "step": trajectory.step,
            "round": trajectory.round,
            "fused": adam(d, fused=True).step,
            "foreach": adam(d, fused=False).step,
        },
        turns,
        burst=max(200_000 // d, 4),
    )
    return AutoRow(
        d=d,
        step=found["step"],
        take=found["round"] - found["step"],
        adam_fused=found["fused"],
        adam_foreach=found["foreach"],
        memory=extra_memory(d),
    )


def adam(size: int, *, fused: bool) -> torch.optim.Adam:
    p = torch.nn.Parameter(torch.randn(size))
    p.grad = torch.randn(size)
    return torch.optim.Adam([p], fused=fused, foreach=not fused)


def measure(d: int, members: int, turns: int) -> Row:
    """All candidates at one size."""
    group = Group(d, members)
    a, b = torch.zeros(members * d), torch.ones(members * d)
    found = medians(
        {
            "step": group.step,
            "round": group.round,
            "fused": adam(members * d, fused=True).step,
            "foreach": adam(members * d, fused=False).step,
            "triad": lambda: a.add_(b, alpha=0.5),
        },
        turns,
        burst=max(200_000 // d, 1),
    )
    return Row(
        d=d,
        members=members,
        step=found["step"],
        take=found["round"] - found["step"],
        adam_fused=found["fused"],
        adam_foreach=found["foreach"],
        floor=5 / 3 * found["triad"],
        memory=extra_memory(d, members),
    )


def extra_memory(d: int, members: int | None = None) -> float:
    """:func:`rise_of_memory` in a process of its own: a peak once reached hides later ones."""
    if d < 10_000_000:  # there the few megabytes that libraries take do not show
        return float("nan")
    code = f"from benchmarks.step import rise_of_memory as rise; print(rise({d}, {members}))"
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return float(found.stdout)


def rise_of_memory(d: int, members: int | None) -> float:
    """How much the optimizer and three rounds lift the peak, in numbers for each of N·d.

    Without ``members`` it is AutoGrouping that is measured, over d.
    """
    three_rounds(100, members)  # loads Numba, which takes about 100 MB whatever d is
    p, grad = torch.nn.Parameter(torch.randn(d)), torch.randn(d)
    before = peak_of_memory()
    three_rounds_over(p, grad, members)
    return (peak_of_memory() - before) / 4 / ((members or 1) * d)


def three_rounds(d: int, members: int | None) -> None:
    three_rounds_over(torch.nn.Parameter(torch.randn(d)), torch.randn(d), members)


def three_rounds_over(p: torch.nn.Parameter, grad: torch.Tensor, members: int | None) -> None:
    opt: GradientGrouping | AutoGrouping = (
        AutoGrouping([p]) if members is None else GradientGrouping([p], members=members, spread=0.1)
    )
    for _ in range(3):
        for member in opt.members():
            p.grad = grad
            member.loss = 1.0
        opt.step()


Kind = TypeVar("Kind", Row, AutoRow)


def table(rows: Sequence[Row]) -> str:
    head = (
        f"{'d':>10} {'N':>2} {'step µs':>10} {'take µs':>10} {'Adam fused':>11} "
        f"{'Adam foreach':>13} {'floor µs':>10} {'step/fused':>11} {'step/floor':>11} "
        f"{'memory/Nd':>10}"
    )
    lines = [
        f"{r.d:>10,} {r.members:>2} {r.step:>10.0f} {r.take:>10.0f} {r.adam_fused:>11.0f} "
        f"{r.adam_foreach:>13.0f} {r.floor:>10.0f} {r.over_fused:>11.2f} {r.over_floor:>11.2f} "
        f"{r.memory:>10.2f}"
        for r in rows
    ]
    return "\n".join([head, *lines])


def auto_table(rows: Sequence[AutoRow]) -> str:
    head = (
        f"{'d':>10} {'step µs':>10} {'take µs':>10} {'Adam fused':>11} {'Adam foreach':>13} "
        f"{'step/fused':>11} {'both/fused':>11} {'memory/d':>10}"
    )
    lines = [
        f"{r.d:>10,} {r.step:>10.0f} {r.take:>10.0f} {r.adam_fused:>11.0f} "
        f"{r.adam_foreach:>13.0f} {r.over_fused:>11.2f} {r.whole_over_fused:>11.2f} "
        f"{r.memory:>10.2f}"
        for r in rows
    ]
    return "\n".join([head, *lines])


def shown(measured: Iterable[Kind], table: Callable[[Sequence[Kind]], str]) -> list[Kind]:
    """The rows, each printed as soon as it has been measured."""
    rows = []
    for row in measured:
        rows.append(row)
        print(table([row]).splitlines()[-1] if rows[1:] else table([row]), flush=True)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--auto", action="store_true", help="AutoGrouping instead")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="D")
    parser.add_argument("--members", type=int, nargs="+", default=MEMBERS, metavar="N")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--csv", help="also write the rows to this file")
    chosen = parser.parse_args(argv)
    rows: Sequence[Row | AutoRow]
    if chosen.auto:
        rows = shown((measure_auto(d, chosen.turns) for d in chosen.sizes), auto_table)
    else:
        pairs = itertools.product(chosen.sizes, chosen.members)
        rows = shown((measure(d, members, chosen.turns) for d, members in pairs), table)
    if chosen.csv:
        with open(chosen.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(rows[0]._fields)
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
