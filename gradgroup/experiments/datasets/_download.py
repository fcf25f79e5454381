"""Downloads that are whole or not there at all, and that go on where they broke off.

What comes is written to ``<file>.part`` beside its target, and stays there when the connection, the
program or the machine stops: the next try asks the server for the rest only. Once it is complete,
pooch compares the checksum, and only then gives it its name. If the checksum is wrong although a
part was there before, that part was bad, and the file is downloaded once more from its beginning.

Processes that want the same files wait for each other, so that no two write to one part.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from gradgroup.experiments.datasets._errors import MissingDataError, in_a_line
from gradgroup.experiments.datasets._records import File

TIMEOUT = 30.0
"""How many seconds a server may say nothing."""
PIECE = 1 << 16
BROKEN_OFF = "the connection broke off"


class Unfit(Exception):  # noqa: N818 - the next server may do better
    """Why what a server sends is of no use."""


def download_file(file: File, folder: Path, progress: bool) -> Path:
    """The path of a file in the cache, after a download from the first address that has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder):
            return from_any(file, folder, progress)
    except OSError as error:
        raise MissingDataError(
            f"{file.name} could not be written to {folder}: {in_a_line(error)}."
        ) from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let other processes wait; the system lets go of the lock of one that dies."""
    with (folder / ".lock").open("w") as lock:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def from_any(file: File, folder: Path, progress: bool) -> Path:
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    failures = []
    for address in file.addresses:
        try:
            return from_one(file, address, folder, progress)
        except (Unfit, RequestException, HTTPError) as error:
            failures.append(f"{address}: {reason(error)}")
    raise MissingDataError(
        f"{file.name} could not be downloaded ({'; '.join(failures)}): try again, or put it by "
        f"hand into {folder}."
    )


def reason(error: Exception) -> str:
    """What went wrong between us and a server, in a few words."""
    import requests
    from urllib3.exceptions import ProtocolError, TimeoutError

    if isinstance(error, Unfit):
        return str(error)
    if isinstance(error, (requests.Timeout, TimeoutError)):
        return f"nothing came for {TIMEOUT:g} seconds"
    return BROKEN_OFF if isinstance(error, ProtocolError) else "the server could not be reached"


def from_one(file: File, address: str, folder: Path, progress: bool) -> Path:
    part = folder / f"{file.name}.part"
    resumed = part.exists() and part.stat().st_size > 0
    try:
        return checked(file, address, part, progress)
    except Unfit:
        if not resumed or part.exists():
            raise
    # The checksum was wrong, and what was there before is gone now.
    return checked(file, address, part, progress)


def checked(file: File, address: str, part: Path, progress: bool) -> Path:
    """Let pooch download, compare the checksum, and give the file its name."""
    import pooch

    folder, downloader = part.parent, partial(complete, file, part, progress)
    try:
        with quiet(pooch.get_logger()):
            pooch.retrieve(address, file.sha256, file.name, folder, downloader=downloader)
    except ValueError as error:
        raise Unfit("what came has a wrong checksum") from error
    return folder / file.name


@contextmanager
def quiet(logger: logging.Logger) -> Iterator[None]:
    """Leave it to the progress bar to say what is downloaded."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def complete(
    file: File, part: Path, progress: bool, url: str, output_file: str, pooch: object
) -> None:
    """What pooch calls to download: complete the part, and make it pooch's file."""
    with part.open("ab") as target:
        if target.tell() < file.size:
            request(target, url, file, progress)
    os.replace(part, output_file)


def empty(target: BinaryIO) -> None:
    target.seek(0)
    target.truncate()


def request(target: BinaryIO, url: str, file: File, progress: bool) -> None:
    """Ask for what is lacking; a server that sends all of it again is fine too."""
    import requests

    have = target.tell()
    # The checksum is that of the file as it is stored: nobody shall pack or unpack it on the way.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        if not answer.ok:
            raise Unfit(f"the server answered {answer.status_code} {answer.reason}")
        start = have if answer.status_code == requests.codes.partial_content else 0
        rest = answer.raw.length_remaining
        if rest is not None and start + rest != file.size:
            raise Unfit(f"it has {start + rest} bytes there instead of {file.size}")
        if not start:
            empty(target)
        append(target, answer.raw.stream(PIECE, decode_content=False), file, progress)


def append(target: BinaryIO, pieces: Iterable[bytes], file: File, progress: bool) -> None:
    """Write what comes, until there is more than enough or no more."""
    from tqdm import tqdm

    # A bar that is neither on nor off finds out whether it is shown on a terminal.
    off = None if progress else True
    size, have = file.size, target.tell()
    with tqdm(
        desc=file.name, total=size, initial=have, unit="B", unit_scale=True, disable=off
    ) as bar:
        for piece in pieces:
            target.write(piece)
            bar.update(len(piece))
            if target.tell() > size:
                return
    if target.tell() < size:
        raise Unfit(BROKEN_OFF)
