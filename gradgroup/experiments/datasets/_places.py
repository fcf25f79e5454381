"""Where files are looked for.

In this order: the user's own folder (an argument or, without it, GRADGROUP_DATA), the cache that
downloads go to, and the folder of the system's packages. A data set has a folder of its own name in
each of them. In the user's, a file may also lie at the top, unless other data sets have files of
the same name: nobody could tell MNIST from Fashion-MNIST there. All files of a part must be in one
place, so that images never meet the labels of others.
"""

from __future__ import annotations

import os
from pathlib import Path

from gradgroup.experiments.datasets._errors import MissingDataError
from gradgroup.experiments.datasets._records import Edition, Part, Source
from gradgroup.experiments.datasets._sources import SOURCES

# Where Debian's packages of data sets put their files.
SYSTEM = Path("/usr/share/datasets")

Folder = str | os.PathLike[str] | None


def search(source: Source, part: Part, folder: Folder) -> tuple[Edition, tuple[Path, ...]] | None:
    """The files of a part, and how to read them."""
    for place in places(source, folder):
        for edition in source.editions:
            paths = tuple(place / name for name in edition.files(part))
            # os.path takes what it may not look at as not there, pathlib raises.
            if all(os.path.isfile(path) for path in paths):
                return edition, paths
    return None


def places(source: Source, folder: Folder) -> list[Path]:
    """The folders to look into, the first one first."""
    own = own_folder(folder)
    shared = [cache() / source.name, SYSTEM / source.name]
    if own is None:
        return shared
    top = [own] if is_unmistakable(source) else []
    return [own / source.name, *top, *shared]


def own_folder(folder: Folder) -> Path | None:
    """The user's folder, if there is one."""
    if folder is None:
        named = os.environ.get("GRADGROUP_DATA")
        return Path(named).expanduser() if named else None
    if not os.path.isdir(folder):
        raise MissingDataError(
            f"There is no folder {os.fspath(folder)} to look for data in: make it or name another."
        )
    return Path(folder)


def cache() -> Path:
    """Where downloads go."""
    from pooch import os_cache

    return Path(os_cache("gradgroup"))


def is_unmistakable(source: Source) -> bool:
    """Whether no other data set has files of the same names."""
    others = (other for other in SOURCES.values() if other.name != source.name)
    return all(file_names(source).isdisjoint(file_names(other)) for other in others)


def file_names(source: Source) -> set[str]:
    return {name for edition in source.editions for name in (*edition.train, *edition.test)}
