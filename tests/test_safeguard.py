"""With the safeguard, no run blows up, and every run gets somewhere."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradgroup.torch import GradientGrouping
from tests.problems import SPECTRA, Quadratic, log_spaced


def run(problem: Quadratic, members: int, rounds: int, **settings: object) -> tuple[float, float]:
    """The highest loss met, of the model or the members' mean, and the last, over the first."""
    torch.manual_seed(0)
    opt = GradientGrouping([problem.x], members=members, **settings)
    highest = 0.0
    for _ in range(rounds):
        loss = opt.step(problem.closure).item()
        highest = max(highest, loss, problem.now())
    return highest / problem.start, problem.now() / problem.start


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("kappa", [1.0, 1e2, 1e4, 1e6])
def test_no_run_diverges(spectrum: Callable[..., Tensor], kappa: float) -> None:
    for members, seed in itertools.product((2, 3, 8), range(2)):
        highest, last = run(Quadratic(spectrum(60, kappa), seed=seed), members, rounds=100)
        assert highest < 10.0
        assert last < 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_scale_matters(dtype: torch.dtype) -> None:
    for length, height in itertools.product((1e-6, 1.0, 1e6), repeat=2):
        problem = Quadratic(log_spaced(40, 1e3, dtype), length=length, height=height)
        highest, last = run(problem, members=4, rounds=300)
        assert highest < 10.0
        assert last < 1e-4


def test_scaling_the_loss_by_a_power_of_two_changes_no_bit() -> None:
    plain, scaled = Quadratic(log_spaced(40, 1e3)), Quadratic(log_spaced(40, 1e3), height=2.0**20)
    run(plain, members=2, rounds=50)
    run(scaled, members=2, rounds=50)
    assert torch.equal(plain.x, scaled.x)


@pytest.mark.parametrize("seed", range(3))
def test_progress_on_an_ill_conditioned_problem(seed: int) -> None:
    problem = Quadratic(log_spaced(200, 1e4), seed=seed)
    _, last = run(problem, members=4, rounds=1000)
    assert last < 1e-6


def test_the_unguarded_solve_diverges_there() -> None:
    problem = Quadratic(log_spaced(200, 1e4))
    highest, _ = run(problem, 2, 200, safeguard=False, spread=1.0)
    assert highest > 1e3


@pytest.mark.parametrize("direction", ["momentum", "nesterov", "rmsprop", "adam", "lbfgs"])
def test_other_directions_do_not_blow_up(direction: str) -> None:
    for kappa in (1e2, 1e4, 1e6):
        problem = Quadratic(log_spaced(60, kappa))
        highest, last = run(problem, members=2, rounds=300, direction=direction)
        assert highest < 10.0
        assert last < 0.1


def test_a_constant_added_to_the_loss_does_not_matter() -> None:
    problem = Quadratic(log_spaced(40, 1e2))
    opt = GradientGrouping([problem.x])

    def closure() -> Tensor:
        problem.x.grad = None
        loss = problem.loss() - 1000.0
        loss.backward()
        return loss

    for _ in range(200):
        opt.step(closure)
    assert problem.now() < 1e-6 * problem.start


# Where a loss has become exactly flat, steps of any length are asked for, and refused.
@pytest.mark.filterwarnings("ignore:A loss, a gradient or a step was NaN")
@pytest.mark.parametrize("members", [2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["linear", "relu", "softplus", "absolute"])
def test_flat_and_kinked_functions_do_not_break_it(
    kind: str, dtype: torch.dtype, members: int
) -> None:
    losses = {
        "linear": lambda z: -z,
        "relu": lambda z: torch.relu(20.0 - z),
        "softplus": lambda z: torch.nn.functional.softplus(20.0 - z),
        "absolute": lambda z: (z - 5.0).abs(),
    }
    for seed in range(6):
        torch.manual_seed(seed)
        slope, w = torch.randn(50, dtype=dtype), torch.nn.Parameter(torch.zeros(50, dtype=dtype))
        opt = GradientGrouping([w], members=members)

        def closure(w: Tensor = w, slope: Tensor = slope) -> Tensor:
            w.grad = None
            loss = losses[kind](w @ slope)
            loss.backward()
            return loss

        start = closure().item()
        for _ in range(60):
            opt.step(closure)
        assert w.isfinite().all()
        # About a kink no step size settles, but the loss stays where it began.
        assert closure().item() < (1.01 * start if kind == "absolute" else start)
