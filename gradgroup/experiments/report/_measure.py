"""What is measured beside the runs: the time of a step, the memory, one step at condition 1.

The idea. The runs of a stack share their work, so that their times say nothing of an optimizer's
own. Here every optimizer takes its steps as a user would have it do, by PyTorch, one after the
other and on one thread; all take turns, so that a slow spell of the machine is shared by all of
them. Memory is the peak of a process of its own.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gradgroup.core import step_sizes
from gradgroup.experiments.engine import BATCH, GROUPING, Setting

if TYPE_CHECKING:
    from gradgroup.experiments.datasets import Images

FIRST_ORDER = ("SGD", "Nesterov", "Adam", "RMSprop")
VECTORISED = f"{GROUPING}, members in one pass"
HALF_BATCH = "SGD, 32 samples"
OPTIMIZERS = (*FIRST_ORDER, "L-BFGS", GROUPING, "GradientGrouping", "AutoGrouping")
# A rate does not matter for the time of a step; this one blows nothing up, and L-BFGS's is its own.
RATE = 1e-3
TURNS, BURST = 12, 20
# Numbers of the parameter whose memory is measured: so many that the C library hands each array
# back as soon as it is free. Of L-BFGS, which needs some 200 arrays, fewer.
NUMBERS, NUMBERS_LBFGS = 10_000_000, 1_000_000


class Measured(NamedTuple):
    """All that was measured."""

    seconds: dict[str, dict[str, float]]
    """Of a step, by data set and optimizer."""
    memory: dict[str, float]
    """Peak memory by optimizer, in numbers for each number of the model: itself, gradients, the
    optimizer's own."""
    one_step: float
    """f after one step over f before it, at condition number 1: the worst of all tries."""


def measure(data: Iterable[Images]) -> Measured:
    """Measure everything."""
    seconds = {images.name: seconds_of_steps(images) for images in data}
    memory = {optimizer: memory_of(optimizer) for optimizer in OPTIMIZERS}
    return Measured(seconds, memory, one_step())


def measured(path: Path, data: Sequence[Images]) -> Measured:
    """The same from a file, where it is there, whole, and knows of these data and optimizers."""
    known = kept(path)
    if known is not None and all(knows(known, images.name) for images in data):
        return known
    found = measure(data)
    path.write_text(json.dumps(found._asdict(), indent=1) + "\n", encoding="utf-8")
    return found


def kept(path: Path) -> Measured | None:
    try:
        return Measured(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def knows(known: Measured, data: str) -> bool:
    timed = {*OPTIMIZERS, VECTORISED, HALF_BATCH}
    return timed <= set(known.seconds.get(data, ())) and set(OPTIMIZERS) <= set(known.memory)


# Times.


def setting_of(data: str, optimizer: str) -> Setting:
    """64 sample gradients a step."""
    members = 2 if optimizer in (GROUPING, "GradientGrouping") else 1
    rate = None if optimizer in (GROUPING, "GradientGrouping", "AutoGrouping") else RATE
    return Setting(data, optimizer, rate, members=members, batch=BATCH // members)


def seconds_of_steps(images: Images) -> dict[str, float]:
    """Seconds a step takes, by optimizer; medians of turns."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = {name: steps_of(images, setting_of(images.name, name)) for name in OPTIMIZERS}
        half = steps_of(images, setting_of(images.name, "SGD")._replace(batch=BATCH // 2))
        return in_turns(steps | {VECTORISED: vectorised_steps(images), HALF_BATCH: half})
    finally:
        torch.set_num_threads(threads)


def steps_of(images: Images, setting: Setting) -> Callable[[], object]:
    """A function that takes the next step."""
    from gradgroup.experiments.engine._batches import rows_of
    from gradgroup.experiments.engine._plain import Plain

    run = Plain(images, setting)
    rows = rows_of(setting, len(images.x), 0)
    numbers = iter(range(sys.maxsize))
    return lambda: run.step(rows[next(numbers) % len(rows)])


def vectorised_steps(images: Images) -> Callable[[], object]:
    """The paper's algorithm with all members evaluated in one pass."""
    import torch
    from torch.nn.functional import cross_entropy

    from gradgroup.experiments.engine._batches import rows_of
    from gradgroup.experiments.engine._plain import Plain
    from gradgroup.torch import GradientGrouping

    run = Plain(images, setting_of(images.name, GROUPING))
    rows = rows_of(setting_of(images.name, "SGD"), len(images.x), 0)[:, 0]
    numbers = iter(range(sys.maxsize))

    def step() -> object:
        batch = rows[next(numbers) % len(rows)]
        x, y = torch.from_numpy(run.pixels.rows(batch)), run.labels[torch.from_numpy(batch)]
        assert isinstance(run.optimizer, GradientGrouping)
        return run.optimizer.step_batched(
            run.model, lambda model, b: cross_entropy(model(b[0]), b[1]), (x, y)
        )

    return step


def in_turns(steps: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of a step; the first turn is for warming up."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(TURNS + 1):
        for name, step in steps.items():
            # L-BFGS first fills its history, and takes a hundred times as long.
            burst = 3 if name == "L-BFGS" and turn else BURST
            start = time.perf_counter()
            for _ in range(burst):
                step()
            if turn:
                found[name].append((time.perf_counter() - start) / burst)
    return {name: median(times) for name, times in found.items()}


# Memory.

_MEMORY = """
import itertools, sys
import torch
from gradgroup.experiments.engine._plain import build
from gradgroup.experiments.report._measure import peak_of_memory, setting_of

def run(scales, steps):
    model = torch.nn.Linear(10, 10, bias=False)
    model.weight = torch.nn.Parameter(torch.ones_like(scales))
    optimizer = build(setting_of("", sys.argv[1]), model)
    # Another loss every time, or L-BFGS stops before its history is full.
    losses = itertools.count(1.0)
    def closure():
        if model.weight.grad is None:
            model.weight.grad = torch.empty_like(scales)
        torch.mul(model.weight.detach(), scales, out=model.weight.grad)
        return torch.tensor(next(losses))
    for _ in range(steps):
        optimizer.step(closure)

torch.set_num_threads(1)
scales = torch.logspace(-4, 0, int(sys.argv[2])).view(10, -1)
run(scales[:, :100].contiguous(), 12)
before = peak_of_memory()
run(scales, 12)
print((peak_of_memory() - before) / 4 / scales.numel())
"""


def memory_of(optimizer: str) -> float:
    """Peak memory of a process with a model, in numbers for each of the model's."""
    numbers = NUMBERS_LBFGS if optimizer == "L-BFGS" else NUMBERS
    command = [sys.executable, "-c", _MEMORY, optimizer, str(numbers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def peak_of_memory() -> float:
    """The most bytes this process ever held; NaN on other systems than Linux.

    ``getrusage`` would count what the process was forked from.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return math.nan
    return 1024.0 * int(status.read_text().split("VmHWM:")[1].split()[0])


# Theory.


def one_step() -> float:
    """What is left of f after one step with α = 1 where all curvatures are equal: the worst try."""
    draw = np.random.default_rng(0)
    worst = 0.0
    for d in (2, 10, 1_000, 100_000):
        for members in (2, 4, 10):
            centre, c = draw.normal(size=d), float(np.exp(draw.normal()))
            thetas = centre + draw.normal(size=(members, d))
            grads = c * (thetas - centre)
            moved = thetas + step_sizes(thetas, grads, alpha=1.0)[:, None] * grads
            before, after = ((m - centre) ** 2 for m in (thetas, moved))
            worst = max(worst, float(after.sum() / before.sum()))
    return worst
