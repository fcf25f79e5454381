"""What can be wrong with data, in sentences.

A reader says what is wrong (:class:`Flaw`), whoever opened the file adds which one it is
(:func:`about`), and whoever wanted the data adds what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MissingDataError(Exception):
    """The files of a data set are not there, and could not be downloaded."""


class BadDataError(Exception):
    """A file is not what it should be."""


class Flaw(Exception):  # noqa: N818 - it is turned into an error before anybody sees it
    """What is wrong with a file, as a sentence that lacks its subject: "is cut short"."""


@contextmanager
def about(place: object) -> Iterator[None]:
    """Whatever goes wrong within is wrong with the file, or part of a file, of this name.

    Everything is caught because a damaged file makes the libraries that read archives, pickles and
    MATLAB's files fail in more ways than they document.
    """
    try:
        yield
    except BadDataError:
        raise  # a part of the file has been named already
    except Flaw as flaw:
        raise BadDataError(f"{place} {flaw}.") from flaw
    except EOFError as error:
        raise BadDataError(f"{place} is cut short.") from error
    except Exception as error:
        raise BadDataError(f"{place} cannot be read ({in_a_line(error)}).") from error


def in_a_line(error: Exception) -> str:
    """What an error says, or else what it is called."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__
