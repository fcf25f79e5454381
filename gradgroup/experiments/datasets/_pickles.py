"""The pickles of CIFAR-10, read without letting them do anything.

A pickle names functions, and whoever loads it calls them. The official files need four, and even
those are not called here: each is replaced by something that only keeps what it is given. What
comes out is checked like any other file, and any other name is refused.

A pickle can also ask for gigabytes, by a few bytes that say so. Therefore its instructions are gone
through before any of them is followed.
"""

from __future__ import annotations

import pickle
import pickletools
from io import BufferedIOBase, BytesIO
from typing import Any

import numpy as np

from gradgroup.experiments.datasets._errors import Flaw
from gradgroup.experiments.datasets._records import Pixels
from gradgroup.experiments.datasets._streams import filled

PROTOCOL = 2
# An official batch has 20,000 objects, for which Python makes a table as long as it is told to.
MOST_OBJECTS = 1 << 20
LONGEST_NAME = 80
"""That is put into a message."""


class Kept:
    """In place of an array, or of its dtype: the arguments and the state that the pickle gives."""

    def __init__(self, *given: object) -> None:
        self.given = given
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


# NumPy has moved its functions, and Python 3 writes bytes as text with an encoding.
STANDING_IN = {
    ("numpy.core.multiarray", "_reconstruct"): Kept,
    ("numpy._core.multiarray", "_reconstruct"): Kept,
    ("numpy", "ndarray"): Kept,
    ("numpy", "dtype"): Kept,
    ("_codecs", "encode"): str.encode,
}


class Unpickler(pickle.Unpickler):
    """Knows the names of the official files, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STANDING_IN:
            asked = f"{module}.{name}"[:LONGEST_NAME]
            raise Flaw(f"asks for {asked!r}, which no official file does: it was not loaded")
        return STANDING_IN[module, name]


def read_batch(stream: BufferedIOBase, size: int, width: int) -> tuple[Pixels, Pixels]:
    """The images of a batch, ``width`` pixels each, and their labels."""
    content = BytesIO(filled(stream, (size,)).data)
    check(content)
    content.seek(0)
    batch = Unpickler(content, encoding="bytes").load()
    try:
        return pixels_in(batch[b"data"], width), labels_in(batch[b"labels"])
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Flaw(f"does not hold images of {width} bytes and their labels") from error


def check(content: BytesIO) -> None:
    """Refuse instructions that no official file has, or that would make Python ask for memory."""
    for instruction, value, _ in pickletools.genops(content):
        if instruction.proto > PROTOCOL:
            raise Flaw(f"is no pickle of protocol {PROTOCOL}, as the official files are")
        if instruction.name.endswith("PUT") and value is not None and value > MOST_OBJECTS:
            raise Flaw(f"claims to hold {value} objects, more than any official file")


def pixels_in(array: Kept, width: int) -> Pixels:
    """What an array was made of, as bytes in rows."""
    _, (samples, columns), dtype, by_columns, raw = array.state
    if dtype.given[0] not in (b"u1", "u1") or by_columns or columns != width or samples < 1:
        raise ValueError("not rows of bytes")
    return np.frombuffer(raw, np.uint8).reshape(samples, width)


def labels_in(numbers: list[int]) -> Pixels:
    """The same of a list; bytes wants whole numbers from 0 to 255, and says so."""
    if not isinstance(numbers, list):
        raise TypeError("not a list")
    return np.frombuffer(bytes(numbers), np.uint8)
