"""One training run, and what is kept of it.

Every closure call is counted with the samples it has seen, and a run ends when it has seen as many
as its epochs have, whatever an optimizer does with them.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.problems import Problem
from benchmarks.rivals import Closure, Method, Trainer

# A run whose loss is so many times that of its start is over.
LOST = 1e4


class Run(NamedTuple):
    """A run in three numbers; infinite where it blew up."""

    running: float
    """Mean loss over all samples seen, where their gradients were taken."""
    final: float
    """Loss of all samples, at the point that is served at the end."""
    highest: float
    """The running loss at its highest, as a mean over a hundredth of the run, after the first
    hundredth; over the loss at the start."""


class Meter:
    """Losses as they are met, each with the number of samples it is the mean of."""

    def __init__(self, start: float, budget: int) -> None:
        self.start, self.budget = start, budget
        self.losses: list[Tensor] = []
        self.counts: list[int] = []
        self.seen = 0

    def add(self, loss: Tensor, count: int) -> None:
        self.losses.append(loss.detach())
        self.counts.append(count)
        self.seen += count

    @property
    def over(self) -> bool:
        return self.seen >= self.budget

    @property
    def lost(self) -> bool:
        return not float(self.losses[-1]) <= LOST * self.start

    def run(self, final: float) -> Run:
        losses = torch.stack(self.losses).double()
        counts = torch.tensor(self.counts, dtype=torch.float64)
        running = float((losses * counts).sum() / counts.sum())
        if self.lost or not math.isfinite(running + final):
            return Run(math.inf, math.inf, math.inf)
        return Run(running, final, self.highest(losses))

    def highest(self, losses: Tensor) -> float:
        width = max(len(losses) // 100, 1)
        sums = torch.cat([torch.zeros(1, dtype=torch.float64), losses.cumsum(0)])
        means = (sums[width:] - sums[:-width]) / width
        return float(means[width:].max()) / self.start if len(means) > width else 0.0


def train(
    problem: Problem,
    method: Method,
    rate: float | None = None,
    *,
    seed: int = 0,
    batch: int = 64,
    epochs: int = 5,
) -> Run:
    """One run. The seed decides the batches, the same for all methods."""
    model = nn.Linear(problem.x.shape[1], problem.outputs, bias=False)
    nn.init.zeros_(model.weight)
    start = problem.full(model.weight) * problem.scale
    meter = Meter(start, epochs * (len(problem.x) // batch) * batch)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a refused step of a run that blows up, deprecations
        trainer = method.train(model, rate)
        for rows in problem.batches(seed, batch):
            shares = rows.chunk(method.shares)
            samples = itertools.cycle(shares) if method.again else iter(shares)
            trainer.step(closure_of(problem, trainer, samples, meter))
            if meter.over or meter.lost:
                break
        run = meter.run(problem.full(trainer.served()) * problem.scale)
    return Run(run.running / problem.scale, run.final / problem.scale, run.highest)


def in_parallel(
    function: Callable[..., Run], jobs: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[Run]:
    """The runs of all jobs, in their order, as they are done; a bar says how far they are.

    Each is on one thread: matrices this small gain nothing from more.
    """
    from joblib import Parallel, delayed
    from tqdm import tqdm

    todo = (delayed(on_one_thread)(function, job) for job in jobs)
    done = Parallel(workers, return_as="generator")(todo)
    yield from tqdm(done, total=len(jobs), disable=None)


def on_one_thread(function: Callable[..., Run], job: tuple[Any, ...]) -> Run:
    torch.set_num_threads(1)
    return function(*job)


def closure_of(
    problem: Problem, trainer: Trainer, shares: Iterator[Tensor], meter: Meter
) -> Closure:
    weight = trainer.model.weight

    def closure() -> Tensor:
        rows = next(shares)
        trainer.opt.zero_grad()
        with torch.enable_grad():
            loss = problem.loss(weight, rows)
        loss.backward()  # type: ignore[no-untyped-call]
        meter.add(loss, len(rows))
        return loss

    return closure
