"""Data sets by name: where they are, how to get them, and what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gradgroup.experiments.datasets import _digits
from gradgroup.experiments.datasets._download import download_file
from gradgroup.experiments.datasets._errors import BadDataError, MissingDataError
from gradgroup.experiments.datasets._places import Folder, cache, places, search
from gradgroup.experiments.datasets._records import DataSet, Edition, Found, Images, Part, Source
from gradgroup.experiments.datasets._sources import NAMES, SOURCES


def load(
    name: str, part: Part = "train", *, folder: Folder = None, download: bool = True
) -> Images:
    """Read a part of a data set; what is not there is downloaded.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    part : {"train", "test"}
        Which part. Of "digits", "train" is all of it, because the study is about training, and
        "test" is every fifth sample (those with ``index % 5 == 4``).
    folder : str or path, optional
        Where to look first; without it, in the folder that GRADGROUP_DATA names.
    download : bool
        Whether to download the part's files when they are nowhere to be found.

    Returns
    -------
    Images
        Pixels as uint8, an image a row, and labels as int64.

    Raises
    ------
    MissingDataError
        If the files are not there, and cannot be downloaded or shall not be.
    BadDataError
        If a file is damaged, or is another than its name says.

    Examples
    --------
    >>> from gradgroup.experiments.datasets import load
    >>> digits = load("digits")
    >>> digits.x.shape, digits.x.dtype, digits.outputs, digits.top
    ((1797, 64), dtype('uint8'), 10, 16)
    """
    check(name, part)
    if name == _digits.NAME:
        return _digits.load_digits(part)
    source = SOURCES[name]
    edition, paths = search(source, part, folder) or get(source, part, folder, download)
    try:
        x, y = edition.read(paths, part)
    except BadDataError as error:
        cure = f"Delete it and fetch it again: gradgroup data --fetch {name}."
        raise BadDataError(f"{error} {cure}") from error
    return Images(name, x, y, source.outputs, top=255)


def find(name: str, part: Part = "train", *, folder: Folder = None) -> Found | None:
    """Where the files of a part are; nothing is downloaded.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    part : {"train", "test"}
        Which part.
    folder : str or path, optional
        Where to look first; without it, in the folder that GRADGROUP_DATA names.

    Returns
    -------
    Found or None
        The paths of the files; of "digits", that of scikit-learn.

    Examples
    --------
    >>> from gradgroup.experiments.datasets import find
    >>> find("digits").paths[0].name
    'sklearn'
    """
    check(name, part)
    if name == _digits.NAME:
        return Found(name, part, _digits.where())
    found = search(SOURCES[name], part, folder)
    return None if found is None else Found(name, part, found[1])


def fetch(name: str, *, progress: bool = True) -> tuple[Path, ...]:
    """Download all files of a data set into the cache; those that are there are only checked.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    progress : bool
        Whether to show a progress bar, if standard error is a terminal.

    Returns
    -------
    tuple of Path
        The files in the cache; none of "digits", which comes with scikit-learn.

    Raises
    ------
    MissingDataError
        If a file cannot be downloaded.

    Examples
    --------
    >>> from gradgroup.experiments.datasets import fetch
    >>> fetch("digits")
    ()
    """
    check(name, "train")
    if name == _digits.NAME:
        return ()
    source = SOURCES[name]
    return into_cache(source, (file.name for file in source.files), progress)


def inventory(folder: Folder = None) -> list[DataSet]:
    """All data sets: how large they are, where they are, and how to get them.

    Parameters
    ----------
    folder : str or path, optional
        Where to look first; without it, in the folder that GRADGROUP_DATA names.

    Returns
    -------
    list of DataSet
        One for each of :data:`NAMES`.

    Examples
    --------
    >>> from gradgroup.experiments.datasets import inventory
    >>> [(each.name, each.inputs * each.outputs) for each in inventory()][2:5]
    [('emnist-letters', 29008), ('cifar10', 30720), ('stl10', 276480)]
    """
    return [*(stock(source, folder) for source in SOURCES.values()), _digits.stock()]


def check(name: str, part: str) -> None:
    """Refuse what is not there to choose."""
    if name not in NAMES:
        raise ValueError(f"There is no data set {name!r}: choose one of {', '.join(NAMES)}.")
    if part not in ("train", "test"):
        raise ValueError(f'There is no part {part!r} of a data set: choose "train" or "test".')


def get(
    source: Source, part: Part, folder: Folder, download: bool
) -> tuple[Edition, tuple[Path, ...]]:
    """What :func:`search` would find after a download."""
    if not download:
        looked = ", ".join(map(str, places(source, folder)))
        raise MissingDataError(
            f"The files of {source.name} were not found in {looked}: run {advice(source)}."
        )
    edition = source.editions[0]
    return edition, into_cache(source, edition.files(part), progress=True)


def into_cache(source: Source, names: Iterable[str], progress: bool) -> tuple[Path, ...]:
    """Download the files of these names."""
    files, folder = {file.name: file for file in source.files}, cache() / source.name
    return tuple(download_file(files[name], folder, progress) for name in names)


def stock(source: Source, folder: Folder) -> DataSet:
    found = search(source, "train", folder)
    return DataSet(
        name=source.name,
        samples=source.samples,
        inputs=source.inputs,
        outputs=source.outputs,
        found=None if found is None else in_one(found[1]),
        addresses=tuple(file.addresses[0] for file in source.files),
        size=sum(file.size for file in source.files),
        advice=f"Run {advice(source)}.",
    )


def in_one(paths: tuple[Path, ...]) -> Path:
    """A file, or the folder of several."""
    return paths[0] if len(paths) == 1 else paths[0].parent


def advice(source: Source) -> str:
    """How to get a data set, after "run"."""
    files = ", ".join(file.name for file in source.files)
    found = (
        f"gradgroup data --fetch {source.name}, or put {files} into $GRADGROUP_DATA/{source.name}/"
    )
    return f"{found}, or {source.elsewhere}" if source.elsewhere else found
