"""What is known of data sets, as plain records.

A data set has two parts, "train" and "test". It comes in one or several *editions*: CIFAR-10 as
pickles or as bare bytes, MNIST packed or not. An edition is a few file names for each part, all in
one folder, and a function that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Part = Literal["train", "test"]
Pixels: TypeAlias = NDArray[np.uint8]
Labels: TypeAlias = NDArray[np.int64]
Read: TypeAlias = Callable[[Sequence[Path], Part], tuple[Pixels, Labels]]


class Images(NamedTuple):
    """A part of a data set, in memory."""

    name: str
    x: Pixels
    """(samples, inputs): an image a row, its pixels in the order of the official file."""
    y: Labels
    """(samples,): what the images show."""
    outputs: int
    """How many outputs a model has; labels are below it."""
    top: int
    """The largest value a pixel can have."""


class Found(NamedTuple):
    """Where a part of a data set is."""

    name: str
    part: Part
    paths: tuple[Path, ...]


class DataSet(NamedTuple):
    """A data set, where it is, and how to get it."""

    name: str
    samples: int
    """In the official training set."""
    inputs: int
    outputs: int
    found: Path | None
    """The file, or the folder of the files, that would be read for training."""
    addresses: tuple[str, ...]
    """The official address of each file."""
    size: int
    """Of the download, in bytes."""
    advice: str
    """How to get it, in a sentence."""


class File(NamedTuple):
    """A file, as it is published."""

    name: str
    size: int
    """In bytes."""
    sha256: str
    addresses: tuple[str, ...]
    """The official one, then others that have the same file."""


class Edition(NamedTuple):
    """A form that a data set comes in."""

    train: tuple[str, ...]
    """The names of the files of the training set; each may have a folder before it."""
    test: tuple[str, ...]
    read: Read

    def files(self, part: Part) -> tuple[str, ...]:
        return self.train if part == "train" else self.test


class Source(NamedTuple):
    """A data set, as it is published."""

    name: str
    samples: int
    inputs: int
    outputs: int
    files: tuple[File, ...]
    """What is downloaded: the files of the first edition."""
    editions: tuple[Edition, ...]
    elsewhere: str = ""
    """Another way to get it, as the end of a sentence."""
