"""MATLAB's files of version 5, as far as SVHN needs them: arrays of bytes.

After a header of 128 bytes a file has elements: a type and a size of four bytes each, and then as
many bytes as the size says, filled up to a multiple of eight. A few bytes, four at most, may share
the first eight with their type and size. An array is an element that consists of elements: flags,
shape, name and numbers. It is usually packed by zlib, in an element of a type of its own.

SciPy can read them too, but looks for the type of the numbers in a table without asking whether it
is in there: a single damaged byte ends Python with a segmentation fault.
"""

from __future__ import annotations

import math
import struct
import zlib
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

from gradgroup.experiments.datasets._errors import Flaw
from gradgroup.experiments.datasets._records import Pixels
from gradgroup.experiments.datasets._streams import PIECE, filled, pour

HEADER = 128
VERSION_AND_ORDER = b"\x00\x01IM"  # version 1.0 of the format, lowest bytes first
UINT8, INT32, MATRIX, PACKED = 2, 5, 14, 15
LONGEST_NAME = 63


class Array(NamedTuple):
    """An array as it is stored."""

    shape: tuple[int, ...]
    numbers: Pixels
    """In one row, the first dimension fastest."""


class Unpacked(BufferedIOBase):
    """What zlib has packed, unpacked as it is asked for."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self.stream = stream
        self.zlib = zlib.decompressobj()

    def read1(self, size: int = PIECE) -> bytes:
        while not self.zlib.eof:
            packed = self.zlib.unconsumed_tail or self.stream.read(PIECE)
            if not packed:
                raise EOFError
            if found := self.zlib.decompress(packed, size):
                return found
        return b""


def arrays_in(path: Path) -> dict[str, Array]:
    """All arrays of a file, by name."""
    found = {}
    with path.open("rb") as file:
        if filled(file, (HEADER,))[-4:].tobytes() != VERSION_AND_ORDER:
            raise Flaw("is not a file of MATLAB, version 5")
        while file.peek(1):
            kind, size = type_and_size(file)
            after = file.tell() + size
            if kind == PACKED:
                name, found[name] = packed_array(file)
            elif kind == MATRIX:
                name, found[name] = array(file)
            file.seek(after)
    return found


def packed_array(file: BufferedIOBase) -> tuple[str, Array]:
    stream = Unpacked(file)
    if type_and_size(stream)[0] != MATRIX:
        raise Flaw("has something else than arrays")
    found = array(stream)
    # At the end zlib compares its checksum; that it comes soon shows that nothing is hidden there.
    if pour(stream, memoryview(bytearray(8))) == 8:
        raise Flaw("is longer than its header says")
    return found


def array(stream: BufferedIOBase) -> tuple[str, Array]:
    """The name of an array, and what is in it."""
    _, shape, name, numbers = (element(stream) for _ in range(4))
    called = name[1][:LONGEST_NAME].tobytes().decode(errors="replace")
    if shape[0] != INT32 or numbers[0] != UINT8:
        raise Flaw(f"has an array {called!r} of other numbers than bytes")
    sizes = tuple(shape[1].view("<i4").tolist())
    if math.prod(sizes) != len(numbers[1]):
        raise Flaw(f"has {len(numbers[1])} numbers for the shape {sizes} of its array {called!r}")
    return called, Array(sizes, numbers[1])


def element(stream: BufferedIOBase) -> tuple[int, Pixels]:
    """The type of the next element, and its bytes."""
    head = filled(stream, (8,))
    kind, size = head.view("<u4").tolist()
    if kind >> 16:
        return kind & 0xFFFF, head[4 : 4 + (kind >> 16)]
    found = filled(stream, (size,))
    pour(stream, memoryview(bytearray(-size % 8)))
    return kind, found


def type_and_size(stream: BufferedIOBase) -> tuple[int, int]:
    kind, size = struct.unpack("<2I", filled(stream, (8,)).data)
    return kind, size
