"""The idx format of MNIST, and of those that were modelled on it.

A header says that numbers are bytes and how large the array is: two zeros, 8 for "unsigned byte",
the number of dimensions, and each dimension in four bytes, the highest first. The bytes follow.

Files come as they are, or packed by gzip; those of Extended-MNIST are packed by gzip and then again
in one zip archive, which is read from within. Extended-MNIST has its images transposed, rows for
columns. They are left so: pixels are inputs, and no model here knows which of them are neighbours.
"""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from gradgroup.experiments.datasets._errors import Flaw, about
from gradgroup.experiments.datasets._records import Labels, Part, Pixels
from gradgroup.experiments.datasets._streams import check_end, filled, labelled

SIDE = 28
INPUTS = SIDE * SIDE
LETTERS = range(1, 27)
DIGITS = range(10)


def read_packed(paths: Sequence[Path], part: Part) -> tuple[Pixels, Labels]:
    """MNIST or Fashion-MNIST as they are published: a file of images, and one of labels."""
    images, labels = paths
    with about(images), gzip.open(images) as stream:
        x = images_of(stream)
    with about(labels), gzip.open(labels) as stream:
        return x, labelled(x, labels_of(stream), DIGITS)


def read_unpacked(paths: Sequence[Path], part: Part) -> tuple[Pixels, Labels]:
    """The same files, after gunzip."""
    images, labels = paths
    with about(images), images.open("rb") as stream:
        x = images_of(stream)
    with about(labels), labels.open("rb") as stream:
        return x, labelled(x, labels_of(stream), DIGITS)


def read_letters(paths: Sequence[Path], part: Part) -> tuple[Pixels, Labels]:
    """Extended-MNIST's letters; labels are 1 to 26, as in the file."""
    (path,) = paths
    with about(path), zipfile.ZipFile(path) as archive:
        with member(archive, path, f"gzip/emnist-letters-{part}-images-idx3-ubyte.gz") as stream:
            x = images_of(stream)
        with member(archive, path, f"gzip/emnist-letters-{part}-labels-idx1-ubyte.gz") as stream:
            return x, labelled(x, labels_of(stream), LETTERS)


@contextmanager
def member(archive: zipfile.ZipFile, path: Path, name: str) -> Iterator[BufferedIOBase]:
    """A file packed by gzip within an archive, unpacked as it is read."""
    if name not in archive.namelist():
        raise Flaw(f"has no {name}")
    with about(f"{name} in {path}"), archive.open(name) as packed, gzip.open(packed) as stream:
        yield stream


def images_of(stream: BufferedIOBase) -> Pixels:
    """An image a row."""
    samples, *sides = shape_of(stream, dimensions=3)
    if sides != [SIDE, SIDE]:
        raise Flaw(f"has images of {sides[0]} × {sides[1]} pixels instead of {SIDE} × {SIDE}")
    return body(stream, (samples, INPUTS), header=16)


def labels_of(stream: BufferedIOBase) -> Pixels:
    return body(stream, shape_of(stream, dimensions=1), header=8)


def shape_of(stream: BufferedIOBase, dimensions: int) -> list[int]:
    """The shape that the header gives."""
    head = filled(stream, (4 + 4 * dimensions,))
    if head[:4].tolist() != [0, 0, 8, dimensions]:
        raise Flaw(f"is not an idx file of bytes in {dimensions} dimensions")
    shape: list[int] = head[4:].view(">u4").tolist()
    if shape[0] == 0:
        raise Flaw("has no samples")
    return shape


def body(stream: BufferedIOBase, shape: Sequence[int], header: int) -> Pixels:
    found = filled(stream, shape, header)
    check_end(stream)
    return found
