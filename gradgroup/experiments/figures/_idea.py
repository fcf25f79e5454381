"""The paper's Figure 1, its data: what a group of points knows that a single one does not.

The idea. One point knows a direction and no distance, so that it must go on in small steps. The
gradients of four points are four lines through parameter space, and where these nearly meet the
minimum cannot be far. The picture is computed, not drawn by hand: a convex function that is not
quadratic, its minimiser by Newton's method, the jumps by :func:`gradgroup.step_sizes`.

Conventions. Points are rows. ``steps`` has the library's sign, descent is negative.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradgroup import step_sizes

Array: TypeAlias = NDArray[np.float64]

# The function: log-sum-exp of five planes. Its level sets go from an ellipse to a polygon, and the
# condition of its Hessian at the minimum is 1.8.
SLOPES = np.array([[1.2, 0.2], [-1.0, 0.4], [-0.3, -0.8], [0.2, 0.6], [0.5, -0.6]])
HEIGHTS = np.array([0.0, 0.3, 0.0, 0.2, -0.5])
# Around one half of the minimum, so that the middle of the points is far from it.
THETAS = np.array([[0.4, 2.2], [-2.7, 1.1], [-2.2, -1.7], [0.2, -3.0]])
# Short enough that one sees steps, and not so short that they end far from the minimum.
RATE, DESCENT = 0.9, 6
WINDOW = (-3.6, 2.2), (-3.6, 2.7)
LEVELS = 9


class IdeaInfo(NamedTuple):
    """All that the figure shows."""

    x: Array
    """(columns,), of the grid of values."""
    y: Array
    """(rows,), of the grid of values."""
    values: Array
    """(rows, columns), of the function."""
    levels: Array
    """The values that have a contour."""
    minimiser: Array
    """(2,), of the function."""
    path: Array
    """(DESCENT + 1, 2): gradient descent from the second of the group's points."""
    path_grads: Array
    """(DESCENT + 1, 2), along the path."""
    thetas: Array
    """(4, 2), the group."""
    grads: Array
    """(4, 2), at the group."""
    steps: Array
    """(4,), the library's."""
    landed: Array
    """(4, 2), where the group is afterwards."""


# The function.


def value(points: Array) -> Array:
    """``f(θ) = log Σ exp(slope·θ + height)``."""
    found: Array = np.logaddexp.reduce(points @ SLOPES.T + HEIGHTS, axis=-1)
    return found


def weights(points: Array) -> Array:
    """The softmax of the planes: what part each has in the gradient."""
    planes = points @ SLOPES.T + HEIGHTS
    found: Array = np.exp(planes - np.logaddexp.reduce(planes, axis=-1, keepdims=True))
    return found


def gradient(points: Array) -> Array:
    """``∇f(θ)``: the mean slope."""
    found: Array = weights(points) @ SLOPES
    return found


def hessian(point: Array) -> Array:
    """``∇²f(θ)``: the covariance of the slopes."""
    apart = SLOPES - gradient(point)
    found: Array = (weights(point) * apart.T) @ apart
    return found


def newton() -> Array:
    """The minimiser; ten iterations from the origin are twice what double precision needs."""
    point = np.zeros(2)
    for _ in range(10):
        point = point - np.linalg.solve(hessian(point), gradient(point))
    return point


def descend(start: Array) -> Array:
    """Gradient descent at a fixed learning rate."""
    path = [start]
    for _ in range(DESCENT):
        path.append(path[-1] - RATE * gradient(path[-1]))
    return np.stack(path)


# The data of the figure.


def idea_info() -> IdeaInfo:
    """The function, a descent and a jump.

    Returns
    -------
    IdeaInfo
        Plain arrays, what :func:`plot_idea` draws.

    Examples
    --------
    >>> info = idea_info()
    >>> np.allclose(info.landed, info.thetas + info.steps[:, None] * info.grads)
    True
    """
    x, y = (np.linspace(low, high, 121) for low, high in WINDOW)
    values = value(np.stack(np.meshgrid(x, y), axis=-1))
    star, path, grads = newton(), descend(THETAS[1]), gradient(THETAS)
    steps: Array = step_sizes(THETAS, grads, alpha=0.9)
    return IdeaInfo(
        x=x,
        y=y,
        values=values,
        levels=levels(values, value(star)),
        minimiser=star,
        path=path,
        path_grads=gradient(path),
        thetas=THETAS,
        grads=grads,
        steps=steps,
        landed=THETAS + steps[:, None] * grads,
    )


def levels(values: Array, lowest: Array) -> Array:
    """Contours that lie about equally far apart: the function grows like a square at first."""
    part = np.linspace(0.1, 1.0, LEVELS)
    found: Array = lowest + (values.max() - lowest) * part**1.5
    return found
