"""The image data sets of the paper's evaluation, from their official files.

Seven of them, by the names of the command line: ``mnist``, ``fashion-mnist``, ``emnist-letters``,
``cifar10``, ``stl10``, ``svhn``, and scikit-learn's ``digits``, which is always there. Pixels stay
the bytes of the files, an image a row, and in the files' order: a linear model does not care which
pixel is where, and a study must only ever see the same.

Files are looked for in ``folder`` or, without one, in the folder that the environment variable
GRADGROUP_DATA names; then in the cache, in the folders of the system, and at the official address.
"""

from __future__ import annotations

from gradgroup.experiments.datasets._errors import BadDataError, MissingDataError
from gradgroup.experiments.datasets._loading import fetch, find, inventory, load
from gradgroup.experiments.datasets._records import DataSet, Found, Images
from gradgroup.experiments.datasets._sources import NAMES

__all__ = [
    "NAMES",
    "BadDataError",
    "DataSet",
    "Found",
    "Images",
    "MissingDataError",
    "fetch",
    "find",
    "inventory",
    "load",
]
