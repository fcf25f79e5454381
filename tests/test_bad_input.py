"""Every mistake gets one sentence that says what is wrong and what to do; nothing is ever lost."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradgroup
from gradgroup.torch import GradientGrouping
from tests.problems import Classes, same, values


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"members": 1}, "at least 2 members, but got members=1"),
        ({"members": 2.0}, "at least 2 members, but got members=2.0"),
        ({"alpha": 0.0}, "alpha must be between 0 and 2 (the paper uses 0.9), but got alpha=0.0"),
        ({"alpha": 2.0}, "but got alpha=2.0"),
        ({"alpha": float("nan")}, "but got alpha=nan"),
        ({"eps": -1e-4}, 'eps must be a number of at least 0 or "relative", but got eps=-0.0001'),
        ({"eps": "tiny"}, "but got eps='tiny'"),
        ({"spread": 0.0}, 'spread must be "auto" or a number above 0, but got spread=0.0'),
        ({"spread": "wide"}, "but got spread='wide'"),
        ({"publish": "last"}, 'publish must be "mean" or "best", but got \'last\''),
        ({"direction": "adamw"}, 'direction must be one of "gradient", "momentum"'),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, but got weight_decay=-1.0"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        GradientGrouping([nn.Parameter(torch.ones(3))], **settings)


def test_a_misspelt_setting_is_not_swallowed() -> None:
    with pytest.raises(TypeError, match="menbers"):
        GradientGrouping([nn.Parameter(torch.ones(3))], menbers=3)
    with pytest.raises(ValueError, match="unknown setting 'weight_decey'"):
        GradientGrouping([{"params": [nn.Parameter(torch.ones(3))], "weight_decey": 0.1}])


def test_no_parameters() -> None:
    with pytest.raises(ValueError, match="empty parameter list"):
        GradientGrouping([])


def test_complex_parameters() -> None:
    with pytest.raises(TypeError, match="view a complex parameter as real"):
        GradientGrouping([nn.Parameter(torch.ones(3, dtype=torch.complex64))])


def test_groups_that_share_a_solve_share_its_settings() -> None:
    groups = [{"params": [nn.Parameter(torch.ones(3))], "alpha": a} for a in (0.5, 0.9)]
    with pytest.raises(ValueError, match="pass per_group=True"):
        GradientGrouping(groups)
    GradientGrouping(groups, per_group=True)


def test_a_closure_that_returns_nothing() -> None:
    problem = Classes()
    opt = problem.optimizer()
    before = values(problem.model)
    with pytest.raises(TypeError, match="closure returned nothing"):
        opt.step(lambda: problem.loss().backward())
    assert same(before, values(problem.model))


def test_a_closure_that_does_not_call_backward() -> None:
    problem = Classes()
    opt = problem.optimizer()
    with pytest.raises(RuntimeError, match=r"must call loss\.backward\(\)"):
        opt.step(problem.loss)


def test_a_closure_whose_loss_is_not_one_number() -> None:
    problem = Classes()
    opt = problem.optimizer()

    def closure() -> torch.Tensor:
        out = problem.model(problem.x)
        out.sum().backward()
        return out

    with pytest.raises(ValueError, match=r"one number, but got a tensor of shape \(64, 3\)"):
        opt.step(closure)


def test_a_step_without_gradients() -> None:
    problem = Classes()
    opt = problem.optimizer()
    problem.loss().backward()
    with pytest.raises(RuntimeError, match="all 2 members but has those of 0"):
        opt.step()
    for _ in opt.members():
        problem.loss().backward()
        break
    with pytest.raises(RuntimeError, match="all 2 members but has those of 1"):
        opt.step()


def test_an_error_in_the_middle_of_a_round_loses_nothing() -> None:
    problem = Classes()
    opt = problem.optimizer()
    for _ in range(6):
        opt.step(problem.closure(opt))
    before, calls = values(problem.model), []

    def closure() -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return problem.closure(opt)()

    with pytest.raises(KeyboardInterrupt):
        opt.step(closure)
    assert same(before, values(problem.model))
    opt.step(problem.closure(opt))
    assert problem.now() < 2.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("when", [0, 2, 10])
@pytest.mark.parametrize("direction", ["gradient", "adam"])
def test_nan_and_inf_are_refused_counted_and_said_once(
    bad: float, where: str, when: int, direction: str
) -> None:
    problem = Classes()
    opt = problem.optimizer(direction=direction)
    for _ in range(when):
        opt.step(problem.closure(opt))
    before = values(problem.model)

    def closure() -> torch.Tensor:
        loss = problem.closure(opt)()
        if where == "gradient":
            problem.model.weight.grad[0, 0] = bad
            return loss
        return loss * bad

    with pytest.warns(RuntimeWarning, match="refused and the parameters are unchanged"):
        opt.step(closure)
    opt.step(closure)
    assert opt.diagnostics.refused == 2
    assert same(before, values(problem.model))
    for _ in range(30):
        opt.step(problem.closure(opt))
    assert problem.now() < 0.9


def test_a_direction_that_is_nan_is_refused() -> None:
    problem = Classes()

    def broken(grads: torch.Tensor, thetas: torch.Tensor, state: dict[str, Any]) -> Any:
        return grads * float("nan"), state

    opt = problem.optimizer(direction=broken, spread=0.1)
    before = values(problem.model)
    with pytest.warns(RuntimeWarning, match="refused"):
        opt.step(problem.closure(opt))
    assert opt.diagnostics.refused == 1
    assert same(before, values(problem.model))


def test_a_direction_of_the_wrong_shape() -> None:
    problem = Classes()
    opt = problem.optimizer(direction=lambda g, t, s: (g.mean(0), s), spread=0.1)
    with pytest.raises(ValueError, match="of the shape of the gradients"):
        opt.step(problem.closure(opt))


def test_sparse_gradients_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.Linear(12, 3))
    before = values(model)
    opt = GradientGrouping(model.parameters())

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = model(torch.tensor([[1, 2, 3]])).square().mean()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="sparse gradient, which members cannot hold"):
        opt.step(closure)
    assert same(before, values(model))


def test_members_at_one_point_are_drawn_apart_again() -> None:
    problem = Classes()
    opt = problem.optimizer()
    for _ in range(8):
        opt.step(problem.closure(opt))
    state = opt.state_dict()
    for entry in state["state"].values():
        entry["members"][:] = entry["members"].mean(0)
    opt.load_state_dict(state)
    before = problem.now()
    for _ in range(20):
        opt.step(problem.closure(opt))
    assert problem.now() < before
    assert opt.diagnostics.spread > 0.0


def test_a_learning_rate_scheduler_has_nothing_to_schedule() -> None:
    opt = Classes().optimizer()
    with pytest.raises(KeyError, match="has no learning rate"):
        torch.optim.lr_scheduler.StepLR(opt, 10)
    opt.load_state_dict(opt.state_dict())
    with pytest.raises(KeyError, match="has no learning rate"):
        torch.optim.lr_scheduler.StepLR(opt, 10)


def test_a_state_saved_with_other_settings() -> None:
    problem = Classes()
    saved = problem.optimizer(members=2).state_dict()
    opt = problem.optimizer(members=3)
    opt.load_state_dict(saved)
    with pytest.raises(ValueError, match="build it with the settings that were saved"):
        opt.step(problem.closure(opt))


def test_the_best_member_needs_losses() -> None:
    problem = Classes()
    opt = problem.optimizer(publish="best", spread=0.1)
    for _ in opt.members():
        problem.loss().backward()
    with pytest.raises(RuntimeError, match=r"set member\.loss"):
        opt.step()


def test_step_sizes_says_what_is_wrong() -> None:
    thetas = np.ones((3, 4))
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(4, 3\)"):
        gradgroup.step_sizes(thetas, thetas.T)
    with pytest.raises(ValueError, match="at least 2 members, but got members=1"):
        gradgroup.step_sizes(thetas[:1], thetas[:1])
    with pytest.raises(ValueError, match="alpha must be between 0 and 2"):
        gradgroup.step_sizes(thetas, thetas, alpha=2.5)
    with pytest.raises(ValueError, match="eps must be a number"):
        gradgroup.step_sizes(thetas, thetas, eps=-1.0)


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys, gradgroup; sys.modules['torch'] = None\n"
        "try:\n    gradgroup.torch\n"
        "except ImportError as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'gradgroup[torch]'" in said.stdout


def test_importing_gradgroup_imports_numpy_alone() -> None:
    code = "import sys, gradgroup; print(*{m.split('.')[0] for m in sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "scipy", "sklearn", "matplotlib"} & set(said.stdout.split())


def test_nothing_is_said_when_nothing_is_wrong() -> None:
    problem = Classes()
    opt = problem.optimizer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            opt.step(problem.closure(opt))


def test_a_step_too_long_for_the_precision_is_refused() -> None:
    x = nn.Parameter(torch.ones(3))
    opt = GradientGrouping([x], spread=1.0, safeguard=False, eps="relative")

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = (1e-39 * x.double() ** 2).sum()
        loss.backward()
        return loss

    with pytest.warns(RuntimeWarning, match="or too large: the step was refused"):
        opt.step(closure)
    assert torch.equal(x, torch.ones(3))
