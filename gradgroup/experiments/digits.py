"""Gradient Grouping beside tuned baselines, on scikit-learn's digits, in seconds.

The idea. The paper's figure asks what a learning rate is worth: every baseline is trained at
each rate of a grid, and Gradient Grouping, which has no rate, is one horizontal line across
the same axes. The model is the paper's (softmax regression without bias), and so is the cost:
a baseline takes the gradient of a batch of 64, each of two members that of one half of it.
What is compared is the paper's y axis, the loss at the points where gradients are taken,
averaged over all of training, and beside it the loss on all samples at the end, at the point
the optimizer serves. With the same seed all optimizers have the same start and the same
batches; with the same arguments a run prints the same numbers.

PyTorch, scikit-learn and matplotlib are imported by the functions that use them, so that
``--help`` answers at once and Ctrl-C is handled from the first moment on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from gradgroup.experiments._results import Result, Run, heading, notes, score, table
from gradgroup.experiments._sensitivity import plot_sensitivity, save, sensitivity_info

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

BATCH = 64
MEMBERS = 2
INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended: 128 + SIGINT."""

Share = Callable[["Tensor"], Sequence["Tensor"]]

# What is compared.


class Data(NamedTuple):
    """The training set."""

    x: Tensor
    """(samples, pixels), float32 in [0, 1]."""
    y: Tensor
    """(samples,), the digits."""


class Contestant(NamedTuple):
    """An optimizer, the rates it is tried at, and what it sees of a batch."""

    name: str
    build: Callable[..., Optimizer]
    rates: tuple[float | None, ...]
    """``None`` for an optimizer that has no learning rate."""
    share: Share
    """Cuts a batch into what each gradient evaluation of a step gets."""


def grid(centre: float) -> tuple[float, ...]:
    """Seven rates, a factor √10 apart."""
    return tuple(centre * 10 ** (k / 2) for k in range(-3, 4))


def whole(batch: Tensor) -> Sequence[Tensor]:
    """For one gradient of the batch."""
    return (batch,)


def halves(batch: Tensor) -> Sequence[Tensor]:
    """For members that share a batch."""
    return batch.chunk(MEMBERS)


def common(batch: Tensor) -> Sequence[Tensor]:
    """For members that all see the same batch."""
    return (batch,) * MEMBERS


def contestants() -> tuple[Contestant, ...]:
    """Gradient Grouping, then the baselines.

    Each grid is centred on the best of 14 rates from 1e-4 to 300, at ten epochs.
    """
    from torch.optim import SGD, Adam, RMSprop

    from gradgroup.torch import GradientGrouping

    grouping = partial(GradientGrouping, members=MEMBERS)
    nesterov = partial(SGD, momentum=0.9, nesterov=True)
    return (
        Contestant("GradientGrouping", grouping, (None,), halves),
        Contestant("GradientGrouping, members see the same batch", grouping, (None,), common),
        Contestant("SGD", SGD, grid(10**0.5), whole),
        Contestant("Nesterov", nesterov, grid(1.0), whole),
        Contestant("RMSprop", RMSprop, grid(10**-1.5), whole),
        Contestant("Adam", Adam, grid(0.1), whole),
    )


# Training.


def load() -> Data:
    """scikit-learn's digits: 1797 pictures of 8 × 8 pixels, all of them for training."""
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = torch.as_tensor(digits.data / 16.0, dtype=torch.float32)
    return Data(x, torch.as_tensor(digits.target))


def batches(samples: int, epochs: int) -> Tensor:
    """Numbers of samples, a batch a row; an epoch leaves out the few that fill no batch."""
    import torch

    full = samples - samples % BATCH
    return torch.cat([torch.randperm(samples)[:full].view(-1, BATCH) for _ in range(epochs)])


def loss_on(model: Module, data: Data) -> Tensor:
    """The multinomial log loss."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(model(data.x), data.y)


def step(optimizer: Optimizer, model: Module, data: Data, shares: Iterable[Tensor]) -> Tensor:
    """One step, each gradient on its share; the mean of the losses where they were taken."""
    remaining = iter(shares)

    def closure() -> Tensor:
        share = next(remaining)
        optimizer.zero_grad()
        loss = loss_on(model, Data(data.x[share], data.y[share]))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    # PyTorch declares closures as if they returned numbers, but hands on what they return.
    loss: Tensor = optimizer.step(closure)  # type: ignore[arg-type, assignment]
    return loss.detach()


def train(contestant: Contestant, rate: float | None, seed: int, data: Data, epochs: int) -> Run:
    """One run. The seed decides the start and the batches, whichever the optimizer."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = torch.nn.Linear(data.x.shape[1], 10, bias=False)
        order = batches(len(data.x), epochs)
        # After the batches: an optimizer may draw numbers of its own.
        settings = {} if rate is None else {"lr": rate}
        optimizer = contestant.build(model.parameters(), **settings)
        losses = [step(optimizer, model, data, contestant.share(batch)) for batch in order]
    with torch.no_grad():
        return Run(float(torch.stack(losses).double().mean()), float(loss_on(model, data)))


def judge(
    contestant: Contestant, data: Data, epochs: int, seeds: int, done: Callable[[], object]
) -> Result:
    """A contestant at all of its rates; ``done`` is called after every run."""

    def runs(rate: float | None) -> Iterator[Run]:
        for seed in range(seeds):
            yield train(contestant, rate, seed, data, epochs)
            done()

    scores = tuple(score(rate, list(runs(rate))) for rate in contestant.rates)
    return Result(contestant.name, sample_gradients(contestant.share), scores)


def sample_gradients(share: Share) -> int:
    """How many sample gradients a step takes, counted."""
    import torch

    return sum(len(samples) for samples in share(torch.arange(BATCH)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one core: matrices this small gain nothing from more, and can lose much."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def compare(data: Data, epochs: int, seeds: int) -> list[Result]:
    """All contestants at all of their rates, with all seeds."""
    from tqdm import tqdm

    field = contestants()
    total = seeds * sum(len(contestant.rates) for contestant in field)
    with one_thread(), tqdm(total=total, desc="Training", unit="run", disable=None) as bar:
        return [judge(contestant, data, epochs, seeds, bar.update) for contestant in field]


# The command.


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake with one sentence instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message.removesuffix('.')}.\n")


def count(text: str) -> int:
    """A number of things there must be at least one of."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"give a whole number of at least 1 instead of {text!r}")
    return number


def parser() -> Parser:
    found = Parser(
        prog="python -m gradgroup.experiments.digits",
        description="Train softmax regression on scikit-learn's digits with GradientGrouping, and "
        "with SGD, Nesterov, RMSprop and Adam at seven learning rates each; print a table and "
        "draw the training loss against the learning rate.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    found.add_argument(
        "--out",
        type=Path,
        default=Path("runs", "digits"),
        metavar="DIR",
        help="folder for digits.png and digits.svg; made if it is not there",
    )
    found.add_argument(
        "--epochs", type=count, default=10, metavar="N", help="passes over the data in each run"
    )
    found.add_argument(
        "--seeds",
        type=count,
        default=3,
        metavar="N",
        help="runs of each optimizer at each rate, with seeds 0 to N-1",
    )
    return found


def claim(folder: Path) -> None:
    """Make a folder and write to it, so that one that cannot be had costs no training."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder):
        pass


@contextmanager
def interrupt_put_off() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def start_libraries() -> None:
    """Import what is slow, whole: PyTorch aborts the process when interrupted halfway."""
    with interrupt_put_off():
        import sklearn.datasets  # noqa: F401

        import gradgroup.torch  # noqa: F401


def report(folder: Path, epochs: int, seeds: int) -> None:
    """Train, print the table, save the figure."""
    start_libraries()
    results = compare(load(), epochs, seeds)
    print(heading(epochs, seeds), "", table(results), *notes(results), sep="\n")
    png, svg = save(plot_sensitivity(sensitivity_info(results, epochs, seeds)), folder)
    print(f"\nThe figure is in {png} and {svg}.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    command = parser()
    options = command.parse_args(argv)
    try:
        claim(options.out)
    except OSError as error:
        command.error(f"argument --out: cannot write to {options.out}: {error.strerror}")
    try:
        report(options.out, options.epochs, options.seeds)
    except KeyboardInterrupt:
        print("Interrupted before the figure was complete.", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
