"""Bytes from streams into arrays: no more than there are, and no more than there should be.

A file says how long it is before it is read, and a damaged one may say anything. So a size is
checked before memory is asked for; memory is only filled with what really comes; and a stream that
goes on beyond the size it gave is left there, because a few packed bytes can unpack to terabytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BufferedIOBase

import numpy as np

from gradgroup.experiments.datasets._errors import Flaw
from gradgroup.experiments.datasets._records import Labels, Pixels

# More than four times the largest part that is read here, the training set of SVHN.
MOST = 1 << 30
PIECE = 1 << 16


def filled(stream: BufferedIOBase, shape: Sequence[int], header: int = 0) -> Pixels:
    """The next bytes as an array; ``header`` is how many came before them."""
    size = math.prod(shape)
    if size > MOST:
        raise Flaw(f"claims to hold {size} bytes, more than any file of these data sets")
    found = np.empty(size, np.uint8)
    got = pour(stream, found.data)
    if got < size:
        raise Flaw(f"is cut short: it has {header + got} of {header + size} bytes")
    return found.reshape(shape)


def pour(stream: BufferedIOBase, room: memoryview) -> int:
    """Fill ``room`` as far as the stream goes, and say how far that was."""
    got = 0
    try:
        # read1 hands over what has come so far, where read would lose it at an early end.
        while got < len(room) and (piece := stream.read1(min(PIECE, len(room) - got))):
            room[got : got + len(piece)] = piece
            got += len(piece)
    except EOFError:
        pass  # how gzip says that the end has come too soon
    return got


def check_end(stream: BufferedIOBase) -> None:
    """Refuse a stream that has more; at its end gzip compares its checksum."""
    if stream.read1(1):
        raise Flaw("is longer than its header says")


def records(stream: BufferedIOBase, size: int, width: int) -> Pixels:
    """A stream of ``size`` bytes as rows of ``width`` bytes."""
    if size == 0 or size % width:
        raise Flaw(f"has {size} bytes, which is no multiple of the {width} of a sample")
    return filled(stream, (size // width, width))


def labelled(x: Pixels, labels: Pixels, allowed: range) -> Labels:
    """The labels of some images, as numbers to calculate with."""
    if len(labels) != len(x):
        raise Flaw(f"has {len(labels)} labels for {len(x)} images")
    low, high = int(labels.min()), int(labels.max())
    if low not in allowed or high not in allowed:
        raise Flaw(
            f"has labels from {low} to {high}, where {allowed[0]} to {allowed[-1]} are possible"
        )
    return labels.astype(np.int64)
