"""SVHN's cropped digits: files of MATLAB with an array X of images and a vector y of labels.

X is (32, 32, 3, samples), the first dimension fastest. That makes an image a row of bytes, colour
after colour and column after column, as which it is left. A zero has the label 10 in the files, and
0 from here on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradgroup.experiments.datasets._errors import Flaw, about
from gradgroup.experiments.datasets._matlab import arrays_in
from gradgroup.experiments.datasets._records import Labels, Part, Pixels
from gradgroup.experiments.datasets._streams import labelled

SHAPE = (32, 32, 3)
INPUTS = math.prod(SHAPE)


def read(paths: Sequence[Path], part: Part) -> tuple[Pixels, Labels]:
    """The part from its one file."""
    (path,) = paths
    with about(path):
        found = arrays_in(path)
        if not {"X", "y"} <= found.keys():
            raise Flaw("does not have both an array X and an array y")
        images, labels = found["X"], found["y"]
        samples = images.shape[-1]
        if images.shape != (*SHAPE, samples) or labels.shape != (samples, 1) or samples < 1:
            raise Flaw(
                f"has X of shape {images.shape} and y of shape {labels.shape} instead of "
                "(32, 32, 3, samples) and (samples, 1)"
            )
        x = images.numbers.reshape(samples, INPUTS)
        y = labelled(x, labels.numbers, range(1, 11))
        return x, np.where(y == 10, 0, y)
