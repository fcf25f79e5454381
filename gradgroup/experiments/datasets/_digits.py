"""scikit-learn's digits: 1797 images of 8 × 8 pixels with values 0 to 16, which need no download.

They are known as one set. The study trains on all of it; for a look at samples that were not seen,
every fifth one is "test", and a model that shall not have seen it must leave it out itself.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gradgroup.experiments.datasets._records import DataSet, Images, Part

NAME = "digits"


def load_digits(part: Part) -> Images:
    from sklearn import datasets

    digits = datasets.load_digits()
    rows = slice(None) if part == "train" else slice(4, None, 5)
    x, y = digits.data[rows].astype(np.uint8), digits.target[rows].astype(np.int64)
    return Images(NAME, x, y, outputs=10, top=16)


def where() -> tuple[Path, ...]:
    """The folder of scikit-learn, which need not be imported for that; it takes a second."""
    spec = find_spec("sklearn")
    return () if spec is None or spec.origin is None else (Path(spec.origin).parent,)


def stock() -> DataSet:
    found = next(iter(where()), None)
    return DataSet(NAME, 1797, 64, 10, found, (), 0, "It comes with scikit-learn.")
