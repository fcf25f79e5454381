"""Members of tar archives that are packed by gzip, read as they pass by.

Nothing is ever extracted, so that no archive can write anywhere; and the archive is read from its
beginning until the last member that is wanted, once, because packed bytes cannot be skipped. So
members come in the order of the archive, which need not be that of their names.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple, cast

from gradgroup.experiments.datasets._errors import Flaw


class Member(NamedTuple):
    """A file in an archive, while it passes by."""

    name: str
    """With that of the archive."""
    place: int
    """Among the names that were asked for."""
    stream: BufferedIOBase
    size: int


def members(path: Path, names: Sequence[str]) -> Iterator[Member]:
    """The members of these names, each of which must be there; nothing but plain files counts."""
    left = {name: place for place, name in enumerate(names)}
    with gzip.open(path) as packed, tarfile.open(fileobj=packed, mode="r|") as tar:
        for info in tar:
            # A link can bear a good name too, and lead anywhere.
            if info.isreg() and info.name in left:
                stream = cast(BufferedIOBase, tar.extractfile(info))
                yield Member(f"{info.name} in {path}", left.pop(info.name), stream, info.size)
            if not left:
                return
    raise Flaw(f"has no {', '.join(left)}")
