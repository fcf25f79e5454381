"""The paper's solve: from the members and their gradients to a signed step each.

The idea. Every member ``i`` draws the line ``θᵢ + ηᵢ gᵢ``. The steps ``η`` are those
for which the points reached lie closest together, measured by

    Ψ(η) = Σᵢ ‖ θᵢ + ηᵢ gᵢ − mean ‖²                                    (eq. 3)

which is a quadratic in ``η`` whose minimiser has a closed form (Lemma 1). With the
Laplacian ``L = N·I − 11ᵀ`` of the complete graph,

    N·Ψ(η) = N·Ψ(0) + 2 ηᵀb + ηᵀA η,   A = GGᵀ ∘ L,   b = (GΘᵀ ∘ L) 1,

so that ``η = −α A⁻¹ b``. Two N×N Gram matrices are all that is ever needed of the d
numbers in a member.

Conventions. Members are rows: ``thetas`` and ``grads`` have shape (N, d); the paper
keeps them as columns. ``steps`` has shape (N,) and carries the paper's sign, so descent
is a negative step. Gram matrices and everything of size N are float64 whatever the
precision of the members. The rows of ``L`` sum to zero, hence moving the origin of
``Θ`` changes nothing. Up to :func:`free_steps`, axes in front of these are groups of their
own, all solved at once.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from array_api_compat import device

from gradgroup.core._namespace import namespace

Array: TypeAlias = Any
Eps: TypeAlias = float | Literal["relative"]

ALPHA = 0.9
EPS = 1e-4
# Of the largest eigenvalue. Products of float32 numbers are only trusted well above it.
RELATIVE_EPS = 1e-8
# Of the largest eigenvalue: what is left of a zero after float64 arithmetic.
ROUNDING = 1e-13
# Columns multiplied at a time: N × BLOCK float32 numbers stay in a core's own cache, and
# single precision never sums more than this many products.
BLOCK = 16_384
# Outside this range the squares of float32 gradients lose digits or overflow.
FLOAT32_SQUARES = (1e-25, 1e30)
# Where a result is this small a part of what it is the difference of, float32 products leave
# too few digits of it.
CANCELLED = 1e-3
TINY = 1e-300


class Grams(NamedTuple):
    """What the solve needs to know of N members: two (N, N) float64 matrices."""

    gg: Array
    """``G Gᵀ``: products of the directions with each other."""
    gt: Array
    """``G Θᵀ``: products of the directions (rows) with the members (columns)."""


class System(NamedTuple):
    """The normal equations ``A η + b = 0`` of the least squares problem: N·Ψ'(η)/2 = A η + b."""

    a: Array
    """``GGᵀ ∘ L``, (N, N) float64, positive semi-definite."""
    b: Array
    """``(GΘᵀ ∘ L) 1``, (N,) float64."""


def laplacian(members: int, like: Array) -> Array:
    """The Laplacian ``N·I − 11ᵀ`` of the complete graph, as an array like ``like``."""
    return _laplacian(members, namespace(like), device(like))


@lru_cache(maxsize=64)
def _laplacian(members: int, xp: Any, where: Any) -> Array:
    ones = xp.ones((members, members), dtype=xp.float64, device=where)
    return members * xp.eye(members, dtype=xp.float64, device=where) - ones


def gram(rows: Array, columns: Array, *, wide: bool = False) -> Array:
    """``rows @ columns.T`` in float64, from arrays of shape (n, d) and (m, d).

    Blocks of columns are multiplied in the arrays' own precision and their sums are
    taken in float64; ``wide=True`` multiplies in float64 as well, at a fraction of the
    speed, and is what half precision always gets.
    """
    xp = namespace(rows, columns)
    if wide or rows.dtype not in (xp.float32, xp.float64):
        return _gram_wide(rows, columns)
    whole = rows.shape[1] - rows.shape[1] % BLOCK
    if not whole:
        return _float64(rows @ columns.T)
    # One product for all blocks: a batched matrix product runs on every core.
    left, right = (_blocks(xp, a[:, :whole]) for a in (rows, columns))
    rest = _float64(rows[:, whole:] @ columns[:, whole:].T)
    return rest + xp.sum(_float64(left @ right.mT), axis=0)


def _blocks(xp: Any, rows: Array) -> Array:
    return xp.permute_dims(xp.reshape(rows, (rows.shape[0], -1, BLOCK)), (1, 0, 2))


def _gram_wide(rows: Array, columns: Array) -> Array:
    total = 0.0
    for block in _slices(rows.shape[1]):
        total = total + _float64(rows[:, block]) @ _float64(columns[:, block]).T
    return total


def _slices(d: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, d)) for start in range(0, d, BLOCK)]


def _float64(a: Array) -> Array:
    xp = namespace(a)
    return xp.astype(a, xp.float64)


def numbers(small: Array) -> Any:
    """Nested lists of Python numbers: the quickest to go through for arrays of size N."""
    return small.tolist() if hasattr(small, "tolist") else np.asarray(small).tolist()


def loses_digits(found: Grams) -> bool:
    """Whether these products of float32 numbers are too inexact for the solve.

    They are when squares under- or overflow, when all gradients are nearly parallel, and when
    the members are close together far from the origin: each is the small difference of large
    numbers, or no number at all.
    """
    gg, gt = numbers(found.gg), numbers(found.gt)
    squares = [row[i] for i, row in enumerate(gg)]
    low, high = FLOAT32_SQUARES
    if not low < max(squares) < high or _all_parallel(gg, squares):
        return True
    sums = [sum(row) for row in gt]
    apart = max(abs(len(gt) * row[i] - sums[i]) for i, row in enumerate(gt))
    return not apart > CANCELLED * max(abs(each) for each in sums)


def _all_parallel(gg: list[list[float]], squares: list[float]) -> bool:
    part = 1.0 - CANCELLED
    return all(
        product * product >= part * one * other
        for row, one in zip(gg, squares, strict=True)
        for product, other in zip(row, squares, strict=True)
    )


def grams(thetas: Array, grads: Array) -> Grams:
    """The two Gram matrices of Lemma 1."""
    # Float32 products that overflow are made again, in float64: nothing to warn of.
    with np.errstate(over="ignore", invalid="ignore"):
        found = Grams(gram(grads, grads), gram(grads, thetas))
    if grads.dtype == namespace(grads).float32 and loses_digits(found):
        found = Grams(gram(grads, grads, wide=True), gram(grads, thetas, wide=True))
    return found


def normal_equations(found: Grams) -> System:
    """``A = GGᵀ ∘ L`` and ``b = (GΘᵀ ∘ L) 1`` of Lemma 1."""
    xp = namespace(found.gg)
    lap = laplacian(found.gg.shape[-1], found.gg)
    # A gradient with Inf makes NaN here, which the caller is to refuse; not a warning.
    with np.errstate(over="ignore", invalid="ignore"):
        return System(found.gg * lap, xp.sum(found.gt * lap, axis=-1))


def free_steps(system: System, alpha: float = ALPHA, eps: Eps = EPS) -> Array:
    """Lemma 1 with the paper's α and its clip: a step of its own for every member."""
    xp = namespace(system.a)
    values, vectors = xp.linalg.eigh(system.a)
    turned = (xp.matrix_transpose(vectors) @ system.b[..., None]) / _clipped(values, eps)[..., None]
    return -alpha * (vectors @ turned)[..., 0]


def _clipped(eigenvalues: Array, eps: Eps) -> Array:
    """Eigenvalues (ascending) clipped from below at ε (appendix, "Practical Modifications")."""
    xp = namespace(eigenvalues)
    if eps and eps != "relative":
        return xp.clip(eigenvalues, min=max(eps, TINY))
    part = RELATIVE_EPS if eps == "relative" else ROUNDING
    return xp.maximum(eigenvalues, xp.clip(part * eigenvalues[..., -1:], min=TINY))


class Sums(NamedTuple):
    """What a step that is common to all members depends on."""

    along: float
    """``Σ b = N Σ (gᵢ−ḡ)·(θᵢ−θ̄)``."""
    apart: float
    """``Σ A = N Σ ‖gᵢ−ḡ‖²``."""
    trace: float
    """``tr A = (N−1) Σ ‖gᵢ‖²``."""


def sums(system: System) -> Sums:
    """The normal equations added up."""
    a = numbers(system.a)
    trace = sum(row[i] for i, row in enumerate(a))
    return Sums(along=sum(numbers(system.b)), apart=max(sum(map(sum, a)), 0.0), trace=trace)


def tied_step(system: System, alpha: float = ALPHA, eps: Eps = "relative") -> float:
    """The minimiser of Ψ when all members must take the same step.

    ``η = −α · Σ (gᵢ−ḡ)·(θᵢ−θ̄) / Σ ‖gᵢ−ḡ‖²``: for two members the Barzilai–Borwein
    step of their difference. On a convex function it is never an ascent, and it is zero where
    the gradients are the same to rounding: there is nothing to go by.
    """
    along, apart, trace = sums(system)
    if not apart > ROUNDING * trace:
        return 0.0
    floor = 0.0 if eps == "relative" else eps * system.b.shape[0]
    return -alpha * along / max(apart, floor, TINY)


def condition(system: System, eps: Eps = EPS) -> float:
    """Condition number of the system that :func:`free_steps` solves, after its clip."""
    xp = namespace(system.a)
    values = _clipped(xp.linalg.eigvalsh(system.a), eps)
    return float(values[-1]) / float(values[0])


def spread_after(psi: float, system: System, steps: Array) -> float:
    """Ψ once the members have taken these steps, from what it was before (eq. 3)."""
    xp = namespace(steps)
    n = system.b.shape[0]
    rise = xp.sum(steps * (2.0 * system.b + system.a @ steps))
    return psi + float(rise / n)


def spread(thetas: Array) -> float:
    """Ψ, the paper's eq. 3: the squared distances of the members to their mean, summed."""
    xp = namespace(thetas)
    return float(sum(_spread(xp, thetas[:, block]) for block in _slices(thetas.shape[1])))


def _spread(xp: Any, block: Array) -> Array:
    block = _float64(block)
    return xp.sum((block - xp.mean(block, axis=0)) ** 2)


def positions(members: int) -> list[float]:
    """``cᵢ``: where the members stand on the line along the gradient, evenly."""
    even = [2.0 * i / (members - 1) - 1.0 for i in range(members)]
    scale = math.sqrt(sum(c * c for c in even) / members)
    return [c / scale for c in even]


def step_sizes(thetas: Array, grads: Array, *, alpha: float = ALPHA, eps: Eps = EPS) -> Array:
    """Signed step sizes that bring N members closest together along their gradients.

    This is Lemma 1 of the paper: the steps ``η`` that minimise
    ``Ψ(η) = Σᵢ ‖θᵢ + ηᵢ gᵢ − mean‖²``, multiplied by ``alpha``.

    Parameters
    ----------
    thetas, grads : array of shape (N, d)
        The members, one a row, and the gradient (or any other direction) at each. Arrays
        of NumPy, PyTorch, JAX or any other library of the array API standard.
    alpha : float, default 0.9
        What part of the way to go; between 0 and 2, exclusive.
    eps : float or "relative", default 1e-4
        Eigenvalues of ``GGᵀ ∘ L`` are clipped from below at this number, as in the paper.
        ``"relative"`` clips at 1e-8 of the largest one, which makes the result
        independent of the scale of the members and of the function.

    Returns
    -------
    array of shape (N,)
        The steps, of the members' own array library and precision. Move the members by
        ``thetas + steps[:, None] * grads``; descent is a negative step.

    Examples
    --------
    On ½‖θ‖² every gradient line passes through the minimum, and one step is enough:

    >>> import numpy as np
    >>> thetas = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, -1.0]])
    >>> steps = step_sizes(thetas, grads=thetas, alpha=1.0)
    >>> np.allclose(steps, -1.0)
    True
    """
    xp = namespace(thetas, grads)
    check_members(thetas, grads)
    check_alpha(alpha)
    check_eps(eps)
    steps = free_steps(normal_equations(grams(thetas, grads)), alpha, eps)
    return xp.astype(steps, grads.dtype)


def check_members(thetas: Array, grads: Array) -> None:
    if thetas.shape != grads.shape or len(thetas.shape) != 2:
        raise ValueError(
            "thetas and grads must both have shape (members, d), one member a row, but have "
            f"shapes {tuple(thetas.shape)} and {tuple(grads.shape)}."
        )
    xp = namespace(thetas, grads)
    if thetas.dtype != grads.dtype or not xp.isdtype(grads.dtype, "real floating"):
        raise TypeError(
            "thetas and grads must have one real floating-point dtype, but have "
            f"{thetas.dtype} and {grads.dtype}: convert them first."
        )
    check_count(thetas.shape[0])


def check_count(members: int) -> None:
    if isinstance(members, bool) or not isinstance(members, int) or members < 2:
        raise ValueError(
            f"Gradient grouping needs at least 2 members, but got members={members!r}: "
            "one gradient line alone meets nothing."
        )


def check_alpha(alpha: float) -> None:
    if not 0.0 < alpha < 2.0:
        raise ValueError(
            f"alpha must be between 0 and 2 (the paper uses 0.9), but got alpha={alpha!r}: "
            "from 2 on every step overshoots by more than it gains."
        )


def check_eps(eps: Eps) -> None:
    if eps != "relative" and not (isinstance(eps, float | int) and eps >= 0.0):
        raise ValueError(
            f'eps must be a number of at least 0 or "relative", but got eps={eps!r}: '
            "it is the smallest eigenvalue the solve may divide by."
        )
