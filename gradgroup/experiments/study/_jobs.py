"""Settings to jobs, and a job done.

The idea. A job is what one process does without being asked anything in between: a stack of runs,
or one run by PyTorch. Runs that see the same batches belong in one job, because they share the
reading of samples; beyond that, jobs are small, because an interruption loses the job in hand.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gradgroup.experiments.datasets import Images, load
from gradgroup.experiments.engine import BATCH, Grid, Run, Setting, Stack

# Trained one by one, by PyTorch.
SINGLE = ("AutoGrouping", "GradientGrouping")
# Weights in a stack: with their gradients and memories they stay in a core's own cache.
STACKED = 100_000


class Job(NamedTuple):
    """Runs that are done together."""

    grid: Grid
    folder: Path | None
    """Where data are looked for first."""

    @property
    def settings(self) -> list[Setting]:
        return self.grid.settings


@lru_cache(maxsize=2)
def images_of(name: str, folder: Path | None) -> Images:
    """The training set, read once in a process."""
    return load(name, folder=folder)


@lru_cache(maxsize=8)
def mark_of(name: str, folder: Path | None) -> str:
    """A mark by which data are told from others."""
    images = images_of(name, folder)
    return f"{zlib.crc32(images.y.tobytes(), zlib.crc32(images.x.tobytes())):08x}"


def do(job: Job) -> list[Run]:
    """The runs of a job, in the order of its settings; on one thread, because jobs are parallel."""
    from threadpoolctl import threadpool_limits

    images = images_of(job.grid.like.data, job.folder)
    with threadpool_limits(1):
        if job.grid.like.optimizer in SINGLE:
            from gradgroup.experiments.engine._plain import Plain

            return [Plain(images, setting).train() for setting in job.settings]
        return Stack(images, job.grid).train()


def jobs_of(settings: Iterable[Setting], folder: Path | None) -> list[Job]:
    """All settings as jobs, the longest first, so that none begins when all others are done."""
    grids = [grid for group in _alike(settings) for grid in _grids(group, folder)]
    return sorted((Job(grid, folder) for grid in grids), key=lambda job: -cost(job))


def _alike(settings: Iterable[Setting]) -> list[list[Setting]]:
    """Groups that differ in seed, rate and spread alone."""
    groups: dict[Setting, list[Setting]] = defaultdict(list)
    for setting in settings:
        groups[setting._replace(seed=0, rate=None, spread=None)].append(setting)
    return list(groups.values())


def _grids(alike: list[Setting], folder: Path | None) -> list[Grid]:
    like = alike[0]
    if like.optimizer in SINGLE:
        # Nothing is gained by doing these together.
        return [Grid(s, (s.seed,), ((s.rate, s.spread),)) for s in alike]
    variants: dict[int, list[tuple[float | None, float | None]]] = defaultdict(list)
    for setting in alike:
        variants[setting.seed].append((setting.rate, setting.spread))
    seeds: dict[tuple[tuple[float | None, float | None], ...], list[int]] = defaultdict(list)
    for seed, found in variants.items():
        seeds[tuple(found)].append(seed)
    return [
        Grid(like, tuple(part), same)
        for same, found in seeds.items()
        for part in _parts(found, _together(like, len(same), folder))
    ]


def _together(like: Setting, variants: int, folder: Path | None) -> int:
    """How many seeds to stack."""
    if like.optimizer == "L-BFGS":
        return 1
    images = images_of(like.data, folder)
    numbers = images.outputs * int(images.x.shape[1]) * like.members * variants
    return max(1, STACKED // numbers)


def _parts(seeds: list[int], size: int) -> list[list[int]]:
    return [seeds[k : k + size] for k in range(0, len(seeds), size)]


# Microseconds a step takes for each member of each run: a fixed part, and one for 1,000 numbers.
# They weigh the progress, and sort the jobs; nothing else depends on them.
COSTS = {"L-BFGS": (700.0, 300.0), "AutoGrouping": (240.0, 8.0), "GradientGrouping": (100.0, 8.0)}
STACK_COST = (4.0, 3.5)


def cost(job: Job) -> float:
    """About how many seconds a job takes."""
    images, like = images_of(job.grid.like.data, job.folder), job.grid.like
    fixed, growing = COSTS.get(like.optimizer, STACK_COST)
    thousands = images.outputs * int(images.x.shape[1]) / 1000.0
    steps = like.epochs * (len(images.x) // BATCH)
    return 1e-6 * steps * like.members * len(job.settings) * (fixed + growing * thousands)
