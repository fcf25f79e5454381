"""The runs of a sensitivity sweep as stacks, beside a plain loop over ``torch.optim``.

Both train the same runs on the same batches: each baseline at all of its learning rates, two
seeds. The plain loop is timed as it stands, one run after the other, on one thread, because more of
them make products this small no faster; and divided among as many processes as there are cores,
which is the best it can do. Stacks have a process for each core. All take turns; medians of the
turns are compared, once everything has been compiled. A run that blows up is over for all of them.

Times are those of a step of all runs together. "The sweep" has as many steps of each optimizer.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.results import write_csv
from gradgroup.experiments.datasets import Images, load
from gradgroup.experiments.engine import BATCH, Grid, Setting, Stack
from gradgroup.experiments.study._plans import BASELINES, rates_of

SEEDS = (0, 1)
# Enough steps for a time to be that of the steps; plain L-BFGS takes 25 ms for each.
STEPS = {"L-BFGS": 60}
MANY = 400


class Row(NamedTuple):
    """An optimizer: milliseconds of a step of all runs together."""

    optimizer: str
    runs: int
    plain: float
    """One run after the other."""
    processes: float
    """A process for each core."""
    stacked: float

    @property
    def ratios(self) -> tuple[float, float]:
        return self.plain / self.stacked, self.processes / self.stacked


def settings_of(optimizer: str) -> Grid:
    """The runs of an optimizer."""
    variants = tuple((rate, None) for rate in rates_of(optimizer))
    return Grid(Setting("mnist", optimizer, epochs=1), SEEDS, variants)


def part_of(images: Images, optimizer: str) -> Images:
    """So many of the images that an epoch has the steps that are to be timed."""
    samples = STEPS.get(optimizer, MANY) * BATCH
    return images._replace(x=images.x[:samples], y=images.y[:samples])


def train_plain(images: Images, settings: Sequence[Setting]) -> None:
    import torch

    from gradgroup.experiments.engine._plain import Plain

    torch.set_num_threads(1)
    for setting in settings:
        Plain(images, setting).train()


def train_stack(images: Images, grid: Grid) -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        Stack(images, grid).train()


def ways(images: Images, optimizer: str, cores: int) -> dict[str, Callable[[], Any]]:
    """Three ways to do the same runs."""
    from joblib import Parallel, delayed

    part, grid = part_of(images, optimizer), settings_of(optimizer)
    each = [grid._replace(seeds=(seed,)) for seed in grid.seeds]
    shares = [grid.settings[k::cores] for k in range(cores)]
    # Arrays go to the workers as they are: files that are shared would have to be cleared away.
    parallel = Parallel(cores, max_nbytes=None)
    return {
        "plain": lambda: train_plain(part, grid.settings),
        "processes": lambda: parallel(delayed(train_plain)(part, share) for share in shares),
        "stacked": lambda: parallel(delayed(train_stack)(part, one) for one in each),
    }


def timed(images: Images, optimizer: str, cores: int, turns: int) -> Row:
    candidates = ways(images, optimizer, cores)
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(turns + 1):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            if turn:  # the first compiles, and fills caches
                times[name].append(time.perf_counter() - start)
    steps, runs = STEPS.get(optimizer, MANY), len(settings_of(optimizer).settings)
    found = {name: 1e3 * median(found) / steps for name, found in times.items()}
    return Row(optimizer, runs, **found)


def summed(rows: Sequence[Row]) -> Row:
    """All optimizers, with as many steps each."""
    plain, processes, stacked = (
        sum(getattr(row, name) for row in rows) for name in ("plain", "processes", "stacked")
    )
    return Row("the sweep", sum(row.runs for row in rows), plain, processes, stacked)


def table(rows: Sequence[Row]) -> str:
    lines = [
        f"{'':<10} {'runs':>5} {'plain':>10} {'processes':>10} {'stacked':>10} {'plain':>9} "
        f"{'processes':>10}",
        f"{'':<10} {'':>5} {'ms':>10} {'ms':>10} {'ms':>10} {'/stacked':>9} {'/stacked':>10}",
    ]
    for row in rows:
        first, second = row.ratios
        lines.append(
            f"{row.optimizer:<10} {row.runs:>5} {row.plain:>10.2f} {row.processes:>10.2f} "
            f"{row.stacked:>10.2f} {first:>9.1f} {second:>10.1f}"
        )
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m benchmarks sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--optimizers", nargs="+", default=BASELINES, choices=BASELINES, metavar="O")
    found.add_argument("--turns", type=int, default=3, help="of which medians are taken")
    found.add_argument("--cores", type=int, default=os.cpu_count(), help="processes")
    found.add_argument("--data-dir", type=Path, help="where MNIST's files are looked for first")
    found.add_argument("--csv", type=Path, help="also write the table to this file")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Time all, print the table, write it where asked."""
    chosen = parser().parse_args(argv)
    images = load("mnist", folder=chosen.data_dir, download=False)
    rows = [timed(images, name, chosen.cores, chosen.turns) for name in chosen.optimizers]
    rows.append(summed(rows))
    print(table(rows))
    if chosen.csv:
        write_csv(chosen.csv, rows)
    return 0
