"""CIFAR-10: five batches to train on and one to test, in two editions.

The binary edition has records of a label and 3072 pixels; the Python edition has a pickle of both,
apart, for each batch. The pixels are the same: all red ones, then the green and the blue.

The batches lie in the archives in no order, but are all of one size. So the first that comes tells
how large the array is in which each has its place, and only one is in memory beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from gradgroup.experiments.datasets._errors import Flaw, about
from gradgroup.experiments.datasets._pickles import read_batch
from gradgroup.experiments.datasets._records import Labels, Part, Pixels
from gradgroup.experiments.datasets._streams import labelled, records
from gradgroup.experiments.datasets._tars import Member, members

INPUTS = 3 * 32 * 32
BATCHES: dict[Part, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{k}" for k in range(1, 6)),
    "test": ("test_batch",),
}

Decode = Callable[[Member], tuple[Pixels, Pixels]]


def decode_binary(member: Member) -> tuple[Pixels, Pixels]:
    rows = records(member.stream, member.size, 1 + INPUTS)
    return rows[:, 1:], rows[:, 0]


def decode_pickle(member: Member) -> tuple[Pixels, Pixels]:
    return read_batch(member.stream, member.size, INPUTS)


def read(
    folder: str, ending: str, decode: Decode, paths: Sequence[Path], part: Part
) -> tuple[Pixels, Labels]:
    """All batches of a part, one after the other."""
    (path,) = paths
    names = [f"{folder}/{batch}{ending}" for batch in BATCHES[part]]
    x, y = room(len(names), 0)
    with about(path):
        for member in members(path, names):
            with about(member.name):
                x, y = put(x, y, member.place, *decode(member))
    return x.reshape(-1, INPUTS), y.reshape(-1)


def put(x: Pixels, y: Labels, place: int, pixels: Pixels, labels: Pixels) -> tuple[Pixels, Labels]:
    """Copy a batch to its place, in arrays that are made when the first one comes."""
    if not x.size:
        x, y = room(len(x), len(pixels))
    if len(pixels) != x.shape[1]:
        raise Flaw(f"has {len(pixels)} images, and another batch {x.shape[1]}")
    x[place], y[place] = pixels, labelled(pixels, labels, range(10))
    return x, y


def room(batches: int, samples: int) -> tuple[Pixels, Labels]:
    """Arrays for so many batches of so many samples."""
    shape = (batches, samples)
    return np.empty((*shape, INPUTS), np.uint8), np.empty(shape, np.int64)


read_binary = partial(read, "cifar-10-batches-bin", ".bin", decode_binary)
read_pickles = partial(read, "cifar-10-batches-py", "", decode_pickle)
