"""STL-10: bare bytes, 96 × 96 × 3 an image, in an archive or in the folder that is left of it.

Images are stored column by column, all red pixels first. They are left so, like all others. Labels
are 1 to 10 in the files, and 0 to 9 from here on.

The archive has 2.6 GB, most of it images without labels, which come last and are never reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gradgroup.experiments.datasets._errors import about
from gradgroup.experiments.datasets._records import Labels, Part, Pixels
from gradgroup.experiments.datasets._streams import labelled, records
from gradgroup.experiments.datasets._tars import members

INPUTS = 3 * 96 * 96


def read_archive(paths: Sequence[Path], part: Part) -> tuple[Pixels, Labels]:
    """The part from ``stl10_binary.tar.gz``."""
    (path,) = paths
    names = [f"stl10_binary/{part}_X.bin", f"stl10_binary/{part}_y.bin"]
    found = {}
    with about(path):
        for member in members(path, names):
            with about(member.name):
                width = (INPUTS, 1)[member.place]
                found[member.place] = records(member.stream, member.size, width)
    return found[0], counted_from_zero(f"{names[1]} in {path}", found[0], found[1])


def read_folder(paths: Sequence[Path], part: Part) -> tuple[Pixels, Labels]:
    """The part from its two files in ``stl10_binary/``."""
    images, labels = paths
    x = read_file(images, INPUTS)
    return x, counted_from_zero(labels, x, read_file(labels, 1))


def read_file(path: Path, width: int) -> Pixels:
    with about(path), path.open("rb") as stream:
        return records(stream, path.stat().st_size, width)


def counted_from_zero(place: object, x: Pixels, labels: Pixels) -> Labels:
    with about(place):
        return labelled(x, labels.reshape(-1), range(1, 11)) - 1
