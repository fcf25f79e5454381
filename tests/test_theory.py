"""The paper's mathematics, statement by statement, and where its statements end.

Every test takes a claim of the paper (Theorem 1, Property 1, the insights about quadratics, the
post-conditioning matrix) or an invariance of its method, and compares what the core computes
with the claim worked out in some other, plainer way. Members are rows here, where the paper has
columns. Where a printed formula holds only in part, the test says what does hold.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gradgroup.core import (
    Grams,
    free_steps,
    gram,
    grams,
    laplacian,
    normal_equations,
    spread,
    spread_after,
    step_sizes,
    tied_step,
)
from gradgroup.core._solve import BLOCK

# So small that nothing is clipped unless it is zero.
NO_CLIP = 1e-30
CLIPS = (NO_CLIP, 1e-4, "relative")

often = settings(deadline=None, max_examples=100)
seeds = st.integers(0, 2**32 - 1)
alphas = st.floats(0.01, 1.99)


@pytest.fixture(params=["numpy", "torch", "array_api_strict"])
def xp(request: pytest.FixtureRequest) -> Any:
    pytest.importorskip(request.param)
    return importlib.import_module(request.param)


def random_members(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """N points, and N directions that have nothing to do with them."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(n, d))


def random_hessian(d: int, seed: int = 0, *, kappa: float = 10.0) -> np.ndarray:
    """A symmetric matrix with eigenvalues from 1 to ``kappa``."""
    eigenvalues = np.linspace(1.0, kappa, d)
    basis = random_rotation(d, seed)
    return (basis * eigenvalues) @ basis.T


def random_rotation(d: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


@st.composite
def small_whole_numbers(draw: st.DrawFn, matrices: int) -> list[np.ndarray]:
    """Matrices of one shape (N, d), often with equal, zero or parallel rows."""
    shape = draw(st.tuples(st.integers(2, 6), st.integers(1, 6)))
    values = st.integers(-9, 9).map(float)
    return [draw(arrays(np.float64, shape, elements=values)) for _ in range(matrices)]


def moved(thetas: Any, grads: Any, steps: Any) -> np.ndarray:
    thetas, grads, steps = (np.asarray(a) for a in (thetas, grads, steps))
    return thetas + steps[..., None] * grads


def psi(points: np.ndarray) -> float:
    """Eq. 3 of the paper."""
    return float(((points - points.mean(0)) ** 2).sum())


def system_of(thetas: np.ndarray, grads: np.ndarray) -> Any:
    return normal_equations(grams(thetas, grads))


def steps_by_force(thetas: np.ndarray, grads: np.ndarray) -> np.ndarray:
    """The minimiser of Ψ by least squares: a column for each step, N·d rows for the offsets."""
    n = len(thetas)
    effects = np.zeros((n, *thetas.shape))
    for i in range(n):
        effects[i, i] = grads[i]
        effects[i] -= grads[i] / n
    offsets = thetas - thetas.mean(0)
    return np.linalg.lstsq(effects.reshape(n, -1).T, -offsets.ravel())[0]


# Theorem 1 and Property 1.


@pytest.mark.parametrize("d", [2, 5, 40])
@pytest.mark.parametrize("n", range(2, 11))
def test_the_closed_form_is_the_least_squares_solution(xp: Any, n: int, d: int) -> None:
    thetas, grads = random_members(n, d)
    steps = step_sizes(xp.asarray(thetas), xp.asarray(grads), alpha=1.0, eps=NO_CLIP)
    np.testing.assert_allclose(np.asarray(steps), steps_by_force(thetas, grads), rtol=1e-9)


def test_alpha_goes_a_part_of_the_way() -> None:
    thetas, grads = random_members(4, 9)
    whole, part = (step_sizes(thetas, grads, alpha=alpha) for alpha in (1.0, 0.3))
    np.testing.assert_allclose(part, 0.3 * whole, rtol=1e-14)


@often
@given(st.integers(2, 7).flatmap(lambda n: arrays(float, (n, n), elements=st.floats(-1e3, 1e3))))
def test_centring_on_both_sides_multiplies_by_the_laplacian(b: np.ndarray) -> None:
    n = len(b)
    lambdas = [np.diag(row) for row in np.eye(n) - 1.0 / n]
    total = sum(each.T @ b @ each for each in lambdas)
    np.testing.assert_allclose(total, b * laplacian(n, b) / n, rtol=0, atol=1e-11)


@often
@given(small_whole_numbers(1))
def test_the_matrix_of_the_solve_is_symmetric_and_positive_semidefinite(one: Any) -> None:
    (grads,) = one
    a = system_of(grads, grads).a
    np.testing.assert_array_equal(a, a.T)
    values = np.linalg.eigvalsh(a)
    assert values[0] >= -1e-13 * values[-1]


def rank(grads: Any) -> int:
    grads = np.asarray(grads)
    return int(np.linalg.matrix_rank(system_of(grads, grads).a))


def test_the_matrix_is_singular_only_if_all_gradients_are_parallel_or_one_is_zero() -> None:
    assert rank(random_members(10, 2)[0]) == 10
    assert rank([[1.0, 2.0], [1.0, 2.0], [3.0, -1.0]]) == 3
    assert rank([[1.0, 2.0], [2.0, 4.0], [-3.0, -6.0]]) == 2
    assert rank(random_members(10, 1)[0]) == 9
    assert rank([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0]]) == 2


def test_members_without_a_gradient_stay_and_do_not_disturb_the_others() -> None:
    thetas, grads = random_members(3, 4)
    steps = step_sizes(thetas, 0.0 * grads)
    np.testing.assert_array_equal(steps, np.zeros(3))
    grads[1] = 0.0
    steps = step_sizes(thetas, grads, alpha=1.0, eps="relative")
    np.testing.assert_allclose(steps[1], 0.0, atol=1e-12)
    np.testing.assert_allclose(steps, steps_by_force(thetas, grads), rtol=1e-9, atol=1e-12)


# What the steps do to Ψ.


@often
@given(small_whole_numbers(2), alphas, st.sampled_from(["relative", 1e-9, 1e-4, 1.0, 1e4]))
def test_the_spread_never_rises_whatever_the_clip(pair: Any, alpha: float, eps: Any) -> None:
    thetas, grads = pair
    steps = step_sizes(thetas, grads, alpha=alpha, eps=eps)
    assert psi(moved(thetas, grads, steps)) <= psi(thetas) * (1.0 + 1e-12) + 1e-12


def test_an_alpha_of_two_would_leave_the_spread_as_it_is_and_more_would_raise_it() -> None:
    thetas, grads = random_members(4, 9)
    system = system_of(thetas, grads)
    after = {alpha: psi(moved(thetas, grads, free_steps(system, alpha))) for alpha in (2.0, 2.1)}
    assert after[2.0] == pytest.approx(psi(thetas))
    assert after[2.1] > psi(thetas)


@often
@given(small_whole_numbers(2), seeds)
def test_the_spread_after_any_steps_is_known_before_they_are_taken(pair: Any, seed: int) -> None:
    thetas, grads = pair
    steps = np.random.default_rng(seed).normal(size=len(thetas))
    foretold = spread_after(spread(thetas), system_of(thetas, grads), steps)
    assert foretold == pytest.approx(psi(moved(thetas, grads, steps)), rel=1e-11, abs=1e-9)


@pytest.mark.parametrize("xp", ["numpy", "torch"], indirect=True)
@pytest.mark.parametrize("d", [3, BLOCK, BLOCK + 1])
def test_the_spread_is_the_papers(xp: Any, d: int) -> None:
    thetas = 5.0 + random_members(3, d)[0]
    assert spread(xp.asarray(thetas)) == pytest.approx(psi(thetas), rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_the_tied_step_is_the_lowest_point_on_a_line(xp: Any, n: int) -> None:
    thetas, grads = random_members(n, 12, seed=n)
    tied = tied_step(system_of(xp.asarray(thetas), xp.asarray(grads)), alpha=1.0)
    around = tied * np.linspace(-1.0, 3.0, 401)
    heights = [psi(thetas + step * grads) for step in around]
    assert around[np.argmin(heights)] == pytest.approx(tied)


@often
@given(small_whole_numbers(2))
def test_steps_of_their_own_bring_members_at_least_as_close_as_a_tied_one(pair: Any) -> None:
    thetas, grads = pair
    system = system_of(thetas, grads)
    assume(system.a.sum() > 0.0)
    free = moved(thetas, grads, free_steps(system, 1.0, "relative"))
    tied = thetas + tied_step(system, 1.0) * grads
    assert psi(free) <= psi(tied) * (1.0 + 1e-12) + 1e-12


@pytest.mark.parametrize("eps", CLIPS)
def test_groups_that_are_solved_at_once_get_the_steps_they_get_alone(xp: Any, eps: Any) -> None:
    pairs = [random_members(3, 12, seed) for seed in range(4)]
    found = [[grams(*map(xp.asarray, pair)) for pair in half] for half in (pairs[:2], pairs[2:])]
    stacked = Grams(
        *(
            xp.stack([xp.stack([getattr(g, k) for g in half]) for half in found])
            for k in ("gg", "gt")
        )
    )
    together = np.asarray(free_steps(normal_equations(stacked), eps=eps))
    assert together.shape == (2, 2, 3)
    for steps, pair in zip(together.reshape(4, 3), pairs, strict=True):
        np.testing.assert_allclose(steps, free_steps(system_of(*pair), eps=eps), rtol=1e-9)


def test_for_two_members_the_tied_step_is_that_of_barzilai_and_borwein() -> None:
    thetas, grads = random_members(2, 12)
    s, y = thetas[1] - thetas[0], grads[1] - grads[0]
    assert tied_step(system_of(thetas, grads), 1.0) == pytest.approx(-(s @ y) / (y @ y))


@often
@given(seeds, st.integers(2, 6), st.integers(1, 8))
def test_on_a_convex_function_the_tied_step_lies_between_the_curvatures(
    seed: int, n: int, d: int
) -> None:
    thetas, _ = random_members(n, d, seed)
    tied = tied_step(system_of(thetas, thetas @ random_hessian(d, seed, kappa=10.0)), 1.0)
    assert -1.0 - 1e-9 <= tied <= -0.1 + 1e-9


# One step to the optimum when all curvatures are equal.


@pytest.mark.parametrize("curvature", [0.02, 1.0, 300.0])
@pytest.mark.parametrize(("n", "d"), [(2, 2), (2, 50), (3, 2), (10, 2), (10, 5), (6, 1000)])
def test_one_step_leads_all_members_to_the_optimum(
    xp: Any, n: int, d: int, curvature: float
) -> None:
    offsets, others = random_members(n, d, seed=1)
    thetas, grads = others[0] + offsets, curvature * offsets
    steps = step_sizes(xp.asarray(thetas), xp.asarray(grads), alpha=1.0, eps="relative")
    np.testing.assert_allclose(np.asarray(steps), -1.0 / curvature, rtol=1e-10)
    np.testing.assert_allclose(moved(thetas, grads, steps), [others[0]] * n, rtol=0, atol=1e-10)


def members_on_one_line(n: int, d: int) -> np.ndarray:
    places, (line, *_) = random_members(n, 1)[0], random_members(n, d)[1]
    return places * line


@pytest.mark.parametrize(("n", "d"), [(2, 1), (5, 1), (2, 30), (5, 30)])
def test_members_on_one_line_with_the_optimum_meet_elsewhere(n: int, d: int) -> None:
    """The one exception, d = 1 included: parallel lines coincide, and any point is a meeting.

    The paper's "irrespective of the number of dimensions" begins with two of them.
    """
    thetas = members_on_one_line(n, d)
    after = moved(thetas, thetas, step_sizes(thetas, thetas, alpha=1.0, eps="relative"))
    assert psi(after) < 1e-12 * psi(thetas)
    assert np.linalg.norm(after[0]) > 0.01 * np.linalg.norm(thetas.mean(0))


@pytest.mark.parametrize(("n", "d"), [(2, 1), (5, 1), (2, 30), (5, 30), (10, 3)])
def test_the_tied_step_leads_to_the_optimum_even_from_one_line(n: int, d: int) -> None:
    thetas = members_on_one_line(n, d)
    assert tied_step(system_of(thetas, 3.0 * thetas), 1.0) == pytest.approx(-1.0 / 3.0)


# Two members and a condition number ρ above 1.
#
# The paper's last line of the expansion lacks a "+" before S3. With it the identity is exact:
#     D θ̃₁ = (g₂ᵀg₂) S1 + (g₁ᵀg₂) S2 + S3 A θ₁.
# Its bound of ‖S1‖ holds as printed, because the weights αᵢ²λᵢ² have one sign. Those of ‖S2‖ and
# ‖S3‖ do not: taking (λⱼ/λᵢ − 1) out of a sum needs the absolute values of the other factors
# inside. With them,
#     ‖S2‖ ≤ (ρ−1) ‖θ₁‖ Σ |αᵢβᵢ| λᵢ² ≤ (ρ−1) ‖θ₁‖ ‖g₁‖ ‖g₂‖,
#     |S3| ≤ (ρ−1) ‖g₂‖² Σ |αⱼβⱼ| λⱼ ≤ (ρ−1) ‖g₂‖² ‖θ₂‖ ‖g₁‖,
# and, as D = ‖g₁‖² ‖g₂‖² sin²φ for an angle φ between the gradients,
#     ‖θ̃₁‖ ≤ (ρ−1) (2‖θ₁‖ + ‖θ₂‖) / sin²φ.


class Pair:
    """Two members on ½θᵀAθ, with A diagonal, and the three parts of where the first one goes."""

    def __init__(self, eigenvalues: Any, first: Any, second: Any) -> None:
        a = np.asarray(eigenvalues, dtype=float)
        self.thetas = t1, t2 = np.asarray([first, second], dtype=float)
        self.grads = g1, g2 = self.thetas * a
        self.gain = a.max() / a.min() - 1.0
        self.s1 = (g1 @ g1) * t1 - (t1 @ g1) * g1
        self.s2 = (t2 @ g1) * g1 - (g1 @ g2) * t1
        self.s3 = (g2 @ g2) * (t1 @ g2) - (g1 @ g2) * (t2 @ g2)
        self.determinant = (g1 @ g1) * (g2 @ g2) - (g1 @ g2) ** 2

    @property
    def left(self) -> np.ndarray:
        """Where the library's step takes the first member."""
        steps = step_sizes(self.thetas, self.grads, alpha=1.0, eps=NO_CLIP)
        return moved(self.thetas, self.grads, steps)[0]

    @property
    def sine_squared(self) -> float:
        return self.determinant / (self.grads**2).sum(1).prod()

    def printed_bounds(self) -> tuple[float, float, float]:
        """The paper's, of ‖S1‖, ‖S2‖ and ‖S3‖."""
        (t1, _), (g1, g2), size = self.thetas, self.grads, np.linalg.norm(self.thetas[0])
        bounds = size * (g1 @ g1), size * abs(g1 @ g2), (g2 @ g2) * abs(t1 @ g2)
        return tuple(self.gain * bound for bound in bounds)

    def sound_bounds(self) -> tuple[float, float, float]:
        (t1, _), (g1, g2), size = self.thetas, self.grads, np.linalg.norm(self.thetas[0])
        bounds = size * (g1 @ g1), size * (abs(g1) @ abs(g2)), (g2 @ g2) * (abs(t1) @ abs(g2))
        return tuple(self.gain * bound for bound in bounds)


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    rng = np.random.default_rng(draw(seeds))
    d, excess = draw(st.integers(2, 6)), 10.0 ** draw(st.floats(-4.0, 2.0))
    eigenvalues = 1.0 + excess * rng.uniform(size=d)
    pair = Pair(eigenvalues, *rng.normal(size=(2, d)))
    assume(pair.sine_squared > 1e-4)
    return pair


@often
@given(pairs())
def test_what_is_left_after_a_step_is_made_of_three_parts(pair: Pair) -> None:
    g1, g2 = pair.grads
    parts = (g2 @ g2) * pair.s1 + (g1 @ g2) * pair.s2 + pair.s3 * g1
    size = np.linalg.norm(pair.thetas) * pair.determinant
    np.testing.assert_allclose(pair.determinant * pair.left, parts, rtol=0, atol=1e-8 * size)


@often
@given(pairs())
def test_each_part_is_bounded_by_the_excess_of_the_condition_number(pair: Pair) -> None:
    bounds = pair.sound_bounds()
    assert np.linalg.norm(pair.s1) <= bounds[0] * (1.0 + 1e-9)
    assert np.linalg.norm(pair.s2) <= bounds[1] * (1.0 + 1e-9)
    assert abs(pair.s3) <= bounds[2] * (1.0 + 1e-9)


def test_products_of_both_signs_break_the_printed_bounds() -> None:
    pair = Pair([1, 2], [1, 1], [4, -1])  # g₁ᵀg₂ = 0
    assert np.linalg.norm(pair.s2) > 1.0 > pair.printed_bounds()[1] == 0.0
    pair = Pair([1, 2], [1, 1], [2, -1])  # θ₁ᵀAθ₂ = 0
    assert abs(pair.s3) > 1.0 > pair.printed_bounds()[2] == 0.0
    pair = Pair([4, 5], [1, 1], [-9, 7])  # and all three together
    (g1, g2), (b1, b2, b3) = pair.grads, pair.printed_bounds()
    total = (g2 @ g2) * b1 + abs(g1 @ g2) * b2 + b3 * np.linalg.norm(g1)
    assert pair.determinant * np.linalg.norm(pair.left) > 3.0 * total


@often
@given(pairs())
def test_the_distance_left_is_bounded_by_the_excess_and_the_angle(pair: Pair) -> None:
    first, second = np.linalg.norm(pair.thetas, axis=1)
    bound = pair.gain * (2.0 * first + second) / pair.sine_squared
    assert np.linalg.norm(pair.left) <= bound * (1.0 + 1e-9) + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_the_distance_left_shrinks_in_proportion_to_the_excess(seed: int) -> None:
    (first, second), (shape, _) = random_members(2, 4, seed)
    excesses = np.array([1e-3, 1e-4, 1e-5])
    left = [np.linalg.norm(Pair(1.0 + x * abs(shape), first, second).left) for x in excesses]
    np.testing.assert_allclose(left / excesses, left[-1] / excesses[-1], rtol=0.05)


def test_nearly_parallel_gradients_are_thrown_far_by_the_smallest_excess() -> None:
    """A ρ of nearly 1 alone is not enough to approach the optimum: D is in the denominator."""
    slants = (1e-2, 1e-3, 1e-4)
    left = [np.linalg.norm(Pair([1, 1.01], [1, 1], [2, 2 + x]).left) for x in slants]
    assert left[0] > 2.0
    np.testing.assert_allclose(np.divide(left[1:], left[:-1]), 10.0, rtol=0.02)


# Post-conditioning: Θ − G B instead of Newton's Θ − A⁻¹ G. With members as rows, Θ − Bᵀ G.


def post_conditioned(thetas: np.ndarray, grads: np.ndarray) -> np.ndarray:
    gg, gt = grams(thetas, grads)
    return thetas - (np.linalg.pinv(gg, hermitian=True) @ gt).T @ grads


@pytest.mark.parametrize(("n", "d"), [(2, 3), (3, 10), (6, 6)])
def test_the_post_conditioner_imitates_newtons_step_as_well_as_products_can(n: int, d: int) -> None:
    hessian, (thetas, _) = random_hessian(d), random_members(n, d)
    grads = thetas @ hessian
    gg, gt = grams(thetas, grads)
    newton = np.linalg.solve(hessian, grads.T)
    best = np.linalg.lstsq(grads.T, newton)[0]
    np.testing.assert_allclose(np.linalg.solve(gg, gt), best, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(6, 6), (9, 6)])
def test_members_that_span_the_space_make_the_post_conditioned_step_newtons(n: int, d: int) -> None:
    """From N > d on GᵀG has no inverse, and its pseudoinverse takes its place."""
    thetas, _ = random_members(n, d)
    after = post_conditioned(thetas, thetas @ random_hessian(d))
    np.testing.assert_allclose(after, 0.0, atol=1e-9)


def test_fewer_members_are_post_conditioned_to_the_optimum_only_in_an_eigenspace() -> None:
    eigenvalues, (thetas, _) = np.linspace(1.0, 10.0, 6), random_members(3, 6)
    assert np.linalg.norm(post_conditioned(thetas, thetas * eigenvalues)) > 0.1
    thetas[:, 3:] = 0.0
    np.testing.assert_allclose(post_conditioned(thetas, thetas * eigenvalues), 0.0, atol=1e-9)


def test_the_post_conditioned_step_leads_to_the_origin_wherever_the_optimum_is() -> None:
    """``C`` in the paper's "θᵀAθ + Cᵀθ": Newton's step goes to the optimum, this one does not."""
    thetas, (optimum, *_) = random_members(6, 6)
    grads = (thetas - optimum) @ random_hessian(6)
    np.testing.assert_allclose(post_conditioned(thetas, grads), 0.0, atol=1e-7)
    assert np.linalg.norm(optimum) > 1.0


# Invariances.


@pytest.mark.parametrize("eps", CLIPS)
def test_members_may_be_numbered_in_any_order(xp: Any, eps: Any) -> None:
    thetas, grads = random_members(6, 9)
    order = np.random.default_rng(0).permutation(6)
    steps, reordered = (
        np.asarray(step_sizes(xp.asarray(thetas[rows]), xp.asarray(grads[rows]), eps=eps))
        for rows in (np.arange(6), order)
    )
    np.testing.assert_allclose(reordered, steps[order], rtol=1e-9)


@pytest.mark.parametrize("eps", CLIPS)
def test_rotating_the_space_changes_no_step(xp: Any, eps: Any) -> None:
    members, rotation = random_members(4, 9), random_rotation(9)
    straight, turned = (
        np.asarray(step_sizes(*(xp.asarray(rows @ by) for rows in members), eps=eps))
        for by in (np.eye(9), rotation)
    )
    np.testing.assert_allclose(turned, straight, rtol=1e-9)


@pytest.mark.parametrize("eps", CLIPS)
def test_moving_the_origin_changes_no_step(xp: Any, eps: Any) -> None:
    thetas, grads = random_members(4, 9)
    here, there = (
        np.asarray(step_sizes(xp.asarray(thetas + shift), xp.asarray(grads), eps=eps))
        for shift in (0.0, 1000.0 * np.arange(9.0))
    )
    np.testing.assert_allclose(there, here, rtol=1e-8)


@pytest.mark.parametrize("eps", CLIPS)
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_members_farther_apart_by_a_factor_take_steps_longer_by_it(scale: float, eps: Any) -> None:
    thetas, grads = random_members(4, 9)
    steps, scaled = (step_sizes(by * thetas, grads, eps=eps) for by in (1.0, scale))
    np.testing.assert_allclose(scaled, scale * steps, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_a_steeper_function_takes_shorter_steps(xp: Any, scale: float) -> None:
    thetas, grads = random_members(4, 9)
    steps, scaled = (
        np.asarray(step_sizes(xp.asarray(thetas), xp.asarray(by * grads), eps="relative"))
        for by in (1.0, scale)
    )
    np.testing.assert_allclose(scaled, steps / scale, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_other_units_of_the_parameters_lead_to_the_same_points(scale: float) -> None:
    """Of f(θ/c) the gradients are divided by c where the members are multiplied by it."""
    thetas, grads = random_members(4, 9)
    plain = moved(thetas, grads, step_sizes(thetas, grads, eps="relative"))
    thetas, grads = scale * thetas, grads / scale
    scaled = moved(thetas, grads, step_sizes(thetas, grads, eps="relative"))
    np.testing.assert_allclose(scaled / scale, plain, rtol=1e-8)


def part_of_the_way(slope: float, eps: Any) -> float:
    """To the optimum of a quadratic of this curvature, in one step with alpha = 1."""
    thetas, _ = random_members(3, 9)
    return float(-slope * step_sizes(thetas, slope * thetas, alpha=1.0, eps=eps).mean())


def test_under_an_absolute_clip_flat_functions_hardly_move_their_members() -> None:
    """Every eigenvalue is below ε there: what is left of the solve is a division by ε."""
    parts = [part_of_the_way(slope, 1e-4) for slope in (1.0, 1e-4, 1e-5, 1e-6)]
    assert parts[0] == pytest.approx(1.0)
    assert parts[1] < 0.01
    np.testing.assert_allclose(np.divide(parts[2:], parts[1:-1]), 0.01)
    assert part_of_the_way(1e-6, "relative") == pytest.approx(1.0)


def distance_after(rounds: int, eps: Any) -> float:
    """From the optimum of ½‖θ‖²."""
    thetas, _ = random_members(2, 5)
    for _ in range(rounds):
        thetas = moved(thetas, thetas, step_sizes(thetas, thetas, eps=eps))
    return float(np.linalg.norm(thetas))


def test_an_absolute_clip_brings_convergence_to_a_halt() -> None:
    """Gradients fade towards the optimum until ε is all that is left of the matrix."""
    assert distance_after(10, 1e-4) > 1e-4
    assert distance_after(200, 1e-4) > 0.1 * distance_after(20, 1e-4)
    assert distance_after(20, "relative") < 1e-18


# The Gram matrices.


@pytest.mark.parametrize("d", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_blocks_add_up_to_the_plain_product(xp: Any, d: int) -> None:
    rows, columns = np.random.default_rng(d).normal(size=(2, 3, d))
    product = np.asarray(gram(xp.asarray(rows), xp.asarray(columns)))
    np.testing.assert_allclose(product, rows @ columns.T, rtol=0, atol=1e-14 * d)


@pytest.mark.parametrize("xp", ["numpy", "torch"], indirect=True)
@pytest.mark.parametrize("d", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_the_wide_product_is_exact_for_single_precision(xp: Any, d: int) -> None:
    rng = np.random.default_rng(d)
    rows, columns = (rng.normal(size=(n, d)).astype(np.float32) for n in (3, 5))
    product = np.asarray(gram(xp.asarray(rows), xp.asarray(columns), wide=True))
    exact = rows.astype(np.float64) @ columns.astype(np.float64).T
    np.testing.assert_allclose(product, exact, rtol=0, atol=1e-14 * d)


@pytest.mark.parametrize("d", [BLOCK - 1, BLOCK, 2 * BLOCK + 3])
def test_single_precision_products_are_summed_in_double(xp: Any, d: int) -> None:
    rows = np.random.default_rng(d).normal(size=(3, d)).astype(np.float32)
    product = np.asarray(gram(xp.asarray(rows), xp.asarray(rows)))
    exact = rows.astype(np.float64) @ rows.astype(np.float64).T
    assert product.dtype == np.float64
    np.testing.assert_allclose(product, exact, rtol=0, atol=1e-6 * d)


# NumPy says that the narrow product overflows, before the wide one takes its place.
@pytest.mark.filterwarnings("ignore:overflow encountered in matmul")
@pytest.mark.parametrize("xp", ["numpy", "torch"], indirect=True)
@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_single_precision_gradients_may_be_tiny_or_huge(xp: Any, scale: float) -> None:
    thetas, grads = (a.astype(np.float32) for a in random_members(3, 50))
    grads = np.float32(scale) * grads
    found = grams(xp.asarray(thetas), xp.asarray(grads))
    wide = grads.astype(np.float64)
    np.testing.assert_allclose(np.asarray(found.gg), wide @ wide.T, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(found.gt), wide @ thetas.T.astype(float), rtol=1e-12)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_multiplied_in_double(name: str) -> None:
    torch = pytest.importorskip("torch")
    thetas = torch.asarray(random_members(3, BLOCK + 7)[0]).to(getattr(torch, name))
    steps = step_sizes(thetas, 2.0 * thetas, alpha=1.0)
    wide = thetas.double()
    torch.testing.assert_close(gram(thetas, thetas), wide @ wide.T, rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(steps, torch.full_like(steps, -0.5), rtol=0, atol=0)
    assert steps.dtype == thetas.dtype
