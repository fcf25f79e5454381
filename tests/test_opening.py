"""The calibration of the start: no scale matters, noise is told from curvature, and it ends."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradgroup.core import Stage
from gradgroup.torch import GradientGrouping
from tests.problems import Quadratic, log_spaced


def opened(problem: Quadratic, members: int) -> tuple[GradientGrouping, list[float]]:
    """An optimizer whose members have just been spread, and the losses they met meanwhile."""
    opt, losses = GradientGrouping([problem.x], members=members), []
    while opt.diagnostics.calibrating:
        losses.append(opt.step(problem.closure).item())
    return opt, losses


@pytest.mark.parametrize("members", range(2, 9))
@pytest.mark.parametrize("kappa", [1.0, 1e2, 1e6])
def test_exact_gradients_are_known_as_such(members: int, kappa: float) -> None:
    problem = Quadratic(log_spaced(60, kappa), seed=members)
    opt, losses = opened(problem, members)
    (solve,) = opt._solves
    assert solve.opening.noise == 0.0
    assert max(losses) < 10.0 * problem.start
    assert len(losses) <= 12


@pytest.mark.parametrize("members", [2, 4])
def test_the_members_stand_about_as_high_as_the_best_step_would_go_down(members: int) -> None:
    problem = Quadratic(log_spaced(60, 10.0))
    slope = problem.eigenvalues * problem.x.detach()
    below = 0.5 * float((slope @ slope) ** 2 / (problem.eigenvalues * slope @ slope))
    opt, _ = opened(problem, members)
    above = opt.step(problem.closure).item() - problem.start
    assert 0.5 * below < above < 2.0 * below


def test_the_start_does_not_depend_on_any_scale() -> None:
    spreads = []
    for length, height in itertools.product((1e-6, 1.0, 1e6), repeat=2):
        problem = Quadratic(log_spaced(40, 1e2), length=length, height=height)
        torch.manual_seed(0)
        opt, _ = opened(problem, 2)
        spreads.append(opt.diagnostics.spread / length**2)
    torch.testing.assert_close(spreads, [spreads[0]] * len(spreads), rtol=1e-6, atol=0.0)


class Noisy:
    """Softmax regression whose members see mini-batches of their own, from zero."""

    def __init__(self, scale: float, height: float) -> None:
        generator = torch.Generator().manual_seed(0)
        centres = torch.randn(4, 30, generator=generator)
        self.y = torch.randint(4, (2000,), generator=generator)
        self.x = scale * (centres[self.y] + 2.0 * torch.randn(2000, 30, generator=generator))
        self.model, self.height, self.generator = nn.Linear(30, 4, bias=False), height, generator
        nn.init.zeros_(self.model.weight)

    def closure(self) -> Tensor:
        batch = torch.randint(2000, (32,), generator=self.generator)
        self.model.zero_grad()
        loss = self.height * cross_entropy(self.model(self.x[batch]), self.y[batch])
        loss.backward()
        return loss

    @torch.no_grad()
    def now(self) -> float:
        return cross_entropy(self.model(self.x), self.y).item()


@pytest.mark.parametrize("members", [2, 4])
def test_through_noise_too_no_scale_matters(members: int) -> None:
    ends = []
    for scale, height in ((1.0, 1.0), (1e-3, 1.0), (1e3, 1.0), (1.0, 1e-3), (1.0, 1e3)):
        problem = Noisy(scale, height)
        torch.manual_seed(1)
        opt = GradientGrouping(problem.model.parameters(), members=members)
        start = problem.now()
        for _ in range(200):
            opt.step(problem.closure)
        assert opt._solves[0].opening.noise > 0.0
        assert opt._solves[0].opening.stage is Stage.DONE
        ends.append(problem.now() / start)
    assert max(ends) < 0.6
    assert max(ends) < 1.1 * min(ends)
