"""Without the safeguard the optimizer is the paper's algorithm, number for number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradgroup.torch import GradientGrouping
from tests.problems import Classes, Quadratic, log_spaced
from tests.reference import gradient_grouping

LETTER = {"safeguard": False, "eps": 1e-4, "alpha": 0.9, "spread": 1.0}


def members_of(opt: GradientGrouping, p: Tensor) -> Tensor:
    """The members of a parameter, one a row."""
    opt.diagnostics  # noqa: B018 (members are created when they are first needed)
    return opt.state_dict()["state"][0]["members"].reshape(-1, p.numel())


def rounds_and_reference(problem: Quadratic, members: int, rounds: int) -> list[Tensor]:
    """How far each round's members are from the reference's, as a multiple of what rounding does.

    In units of the largest number there, and of the condition of that round's system. Every
    round starts from the same members, because the algorithm amplifies rounding: two runs that
    differ in the last bit part company after some tens of rounds.
    """
    opt = GradientGrouping([problem.x], members=members, **LETTER)
    before, apart = members_of(opt, problem.x), []
    for _ in range(rounds):
        opt.step(problem.closure)
        after = members_of(opt, problem.x)
        expected = gradient_grouping(before.T, lambda x: problem.eigenvalues * x, rounds=1).T
        size = opt.diagnostics.condition * torch.maximum(before.abs().max(), after.abs().max())
        apart.append((after - expected).abs().max() / size)
        before = after
    return apart


@pytest.mark.parametrize("members", [2, 3, 4, 8])
@pytest.mark.parametrize("d", [10, 50, 20_000])
def test_the_paper_to_the_letter(members: int, d: int) -> None:
    apart = rounds_and_reference(Quadratic(log_spaced(d, 20.0)), members, rounds=20)
    assert max(apart) < 1e-13


@pytest.mark.parametrize("members", [2, 8])
def test_the_paper_to_the_letter_in_single_precision(members: int) -> None:
    problem = Quadratic(log_spaced(500, 20.0, torch.float32))
    assert max(rounds_and_reference(problem, members, rounds=15)) < 1e-5


def test_a_whole_run_follows_the_reference() -> None:
    problem = Quadratic(log_spaced(500, 20.0))
    opt = GradientGrouping([problem.x], **LETTER)
    start = members_of(opt, problem.x)
    for _ in range(15):
        opt.step(problem.closure)
    expected = gradient_grouping(start.T, lambda x: problem.eigenvalues * x, rounds=15).T
    torch.testing.assert_close(members_of(opt, problem.x), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("members", [2, 3, 6])
def test_one_step_to_the_optimum_when_all_curvatures_are_equal(members: int) -> None:
    problem = Quadratic(torch.full((40,), 3.0, dtype=torch.float64))
    opt = GradientGrouping(
        [problem.x], members=members, alpha=1.0, eps="relative", spread=1.0, safeguard=False
    )
    opt.step(problem.closure)
    assert problem.now() < 1e-24 * problem.start


def test_members_are_spread_about_the_model_by_the_number_given() -> None:
    p = torch.nn.Parameter(torch.full((20_000,), 5.0))
    opt = GradientGrouping([p], members=3, spread=0.25)
    offsets = members_of(opt, p) - 5.0
    torch.testing.assert_close(offsets.mean(0), torch.zeros(20_000), rtol=0, atol=1e-6)
    torch.testing.assert_close(offsets.std(1), torch.full((3,), 0.25), rtol=0.03, atol=0.0)


def test_own_and_common_batches_are_the_closures_doing() -> None:
    problem = Classes()
    opt = problem.optimizer(**LETTER)
    own = opt.step(problem.shares(opt, 2))
    common = opt.step(problem.closure(opt))
    assert own.isfinite()
    assert common.isfinite()


def test_the_absolute_clip_stops_convergence_where_the_relative_one_goes_on() -> None:
    results = {}
    for eps in (1e-4, "relative"):
        problem = Quadratic(log_spaced(50, 3.0))
        opt = GradientGrouping([problem.x], spread=1.0, safeguard=False, eps=eps)
        for _ in range(150):
            opt.step(problem.closure)
        results[eps] = problem.now()
    assert results["relative"] < 1e-60
    assert results[1e-4] > 1e-9
