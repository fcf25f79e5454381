"""Softmax regression on a file or a data set, trained by ``AutoGrouping``.

The idea. Nothing is scaled, and nothing is asked: features go in as they are, bytes of pixels or
columns of any size, because the optimizer's metric is their own.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from gradgroup.experiments.datasets import NAMES, BadDataError, MissingDataError, load
from gradgroup.experiments.datasets._errors import Flaw, about
from gradgroup.torch import AutoGrouping

Array = np.ndarray[Any, Any]

ARRAYS = ("x", "y", "x_test", "y_test")
# Models are in single precision.
LARGEST = np.finfo(np.float32).max


class Samples(NamedTuple):
    """Features and labels."""

    x: Array
    """(samples, features), of any real dtype."""
    y: Array
    """(samples,), of any dtype that can be sorted."""


class Training(NamedTuple):
    """What a model is trained on, and, where there is any, what it is tested on."""

    train: Samples
    test: Samples | None


class Model(NamedTuple):
    """A sample belongs to the class at which ``weights · x + bias`` is largest."""

    weights: Array
    bias: Array
    classes: Array


def read(name: str, folder: Path | None) -> Training:
    """A data set by name, or a file."""
    if name in NAMES:
        train, test = load(name, folder=folder), load(name, "test", folder=folder)
        return Training(Samples(train.x, train.y), Samples(test.x, test.y))
    path = Path(name)
    if not path.is_file():
        raise MissingDataError(f"There is no file {path}: name another.")
    return of_file(path)


def of_file(path: Path) -> Training:
    """Arrays x and y of a file, and x_test and y_test if it has them."""
    arrays = arrays_of(path)
    train = samples(path, arrays, "x", "y")
    if not {"x_test", "y_test"} & set(arrays):
        return Training(train, None)
    test = samples(path, arrays, "x_test", "y_test")
    if test.x.shape[1] != train.x.shape[1]:
        raise BadDataError(
            f"{path}: x_test has {test.x.shape[1]} features, but x has {train.x.shape[1]}: give "
            "both the same."
        )
    if (test.y.dtype.kind in "US") != (train.y.dtype.kind in "US"):
        raise BadDataError(
            f"{path}: y is {train.y.dtype} and y_test {test.y.dtype}: give both as numbers or both "
            "as strings."
        )
    return Training(train, test)


def arrays_of(path: Path) -> dict[str, Array]:
    """What the file has of the arrays we know."""
    with about(path):
        # NumPy takes whatever is no archive for a pickle, and advises to trust it.
        if not zipfile.is_zipfile(path):
            raise Flaw("is no whole .npz file: write one with numpy.savez")
        with np.load(path, allow_pickle=False) as file:
            return {name: array(path, file, name) for name in file.files if name in ARRAYS}


def array(path: Path, file: Any, name: str) -> Array:
    with about(f"{name} in {path}"):
        found: Array = file[name]
        return found


def samples(path: Path, arrays: dict[str, Array], of_x: str, of_y: str) -> Samples:
    """Two of the file's arrays, as far as they can be features and labels."""
    for name in (of_x, of_y):
        if name not in arrays:
            there = ", ".join(arrays) or "none of x, y, x_test and y_test"
            raise BadDataError(f"{path} has no array {name!r}, but {there}: add it.")
    x, y = arrays[of_x], arrays[of_y]
    if x.ndim != 2 or y.shape != x.shape[:1] or not x.size:
        raise BadDataError(
            f"{path}: {of_x} must be (samples, features) and {of_y} (samples,), but they are "
            f"{x.shape} and {y.shape}."
        )
    check(f"{path}: {of_x}", x, "buif", "real numbers")
    check(f"{path}: {of_y}", y, "buifUS", "numbers or strings")
    return Samples(x, y)


def check(name: str, values: Array, kinds: str, wanted: str) -> None:
    """Refuse what no model can be trained on."""
    if values.dtype.kind not in kinds:
        raise BadDataError(f"{name} is {values.dtype}: give {wanted}.")
    wrong = np.count_nonzero(~(np.abs(values) <= LARGEST)) if values.dtype.kind == "f" else 0
    if wrong:
        raise BadDataError(
            f"{name} has {wrong:,} of {values.size:,} values that are NaN, infinite or too large "
            "for single precision: leave them out."
        )


def fit(training: Training, epochs: int, batch: int, seed: int) -> Model:
    """Train on batches in an order drawn by the seed."""
    x, y = training.train
    classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise BadDataError(f"All labels are {classes[0]}: give samples of at least two classes.")
    model = nn.Linear(x.shape[1], len(classes))
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    opt = AutoGrouping(model.parameters())
    draw = np.random.default_rng(seed)
    with tqdm(total=epochs, desc="Training", unit="epoch", disable=None) as bar:
        for _ in range(epochs):
            mean = epoch(model, opt, x, numbers, draw.permutation(len(x)), min(batch, len(x)))
            bar.update()
            bar.set_postfix_str(f"loss {mean:.4f}")
    weights, bias = (p.detach().numpy() for p in (model.weight, model.bias))
    return Model(weights, bias, classes)


def epoch(
    model: nn.Linear, opt: AutoGrouping, x: Array, y: Array, order: Array, batch: int
) -> float:
    """The mean loss where gradients were taken; the few samples that fill no batch are left out."""
    losses = []
    for rows in order[: len(order) - len(order) % batch].reshape(-1, batch):
        features = torch.from_numpy(x[rows].astype(np.float32))
        labels = torch.from_numpy(y[rows])

        def closure(features: torch.Tensor = features, labels: torch.Tensor = labels) -> Any:
            opt.zero_grad()
            loss = cross_entropy(model(features), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        losses.append(opt.step(closure))
    return float(torch.stack(losses).mean())


def save(model: Model, path: Path) -> None:
    """Write the model whole, or not at all."""
    half = path.with_name(path.name + ".part")
    try:
        with half.open("wb") as file:
            np.savez(file, **model._asdict())
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def told(model: Model, training: Training) -> str:
    """How good the model is."""
    lines = [f"Training: {quality(model, training.train)}"]
    if training.test is not None:
        lines.append(f"Test:     {quality(model, training.test)}")
    return "\n".join(lines)


def quality(model: Model, found: Samples) -> str:
    """Loss and accuracy; a label that was not in training counts as wrong."""
    total, right = 0.0, 0
    for low in range(0, len(found.x), 5_000):
        x, y = found.x[low : low + 5_000].astype(np.float32), found.y[low : low + 5_000]
        logits = (x @ model.weights.T + model.bias).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        of_truth = np.where(y[:, None] == model.classes, chance, 0.0).sum(axis=1)
        total -= float(np.log(np.maximum(of_truth, 1e-300)).sum())
        right += int((model.classes[logits.argmax(axis=1)] == y).sum())
    count = len(found.x)
    return f"loss {total / count:.4f}, {right / count:.2%} of {count:,} samples right"
