"""What every optimizer must do, run over all settings that change how the books are kept."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from gradgroup.torch import AutoGrouping, GradientGrouping
from tests.problems import Classes, every_kind, same, values

GROUPING: list[dict[str, Any]] = [
    {},
    {"members": 5},
    {"safeguard": False, "eps": 1e-4, "spread": 0.5},
    {"publish": "best"},
    {"per_group": True},
    {"weight_decay": 0.01},
    *({"direction": name} for name in ("momentum", "nesterov", "rmsprop", "adam", "lbfgs")),
]
AUTO: list[dict[str, Any]] = [
    {"kind": AutoGrouping},
    {"kind": AutoGrouping, "members": 3},
    {"kind": AutoGrouping, "weight_decay": 0.01},
]


def name(settings: dict[str, Any]) -> str:
    kind = settings.get("kind", GradientGrouping).__name__
    rest = (f"{key}={value}" for key, value in settings.items() if key != "kind")
    return ", ".join([kind, *rest])


def round_of(settings: dict[str, Any]) -> int:
    """How many gradients a step has."""
    return settings.get("members", 1 if "kind" in settings else 2)


every_setting = pytest.mark.parametrize("settings", GROUPING + AUTO, ids=name)
every_grouping = pytest.mark.parametrize("settings", GROUPING, ids=name)


def deep() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def train(problem: Classes, opt: Any, steps: int) -> None:
    for _ in range(steps):
        opt.step(problem.closure(opt))


@every_setting
def test_the_loss_falls(settings: dict[str, Any]) -> None:
    problem = Classes()
    opt = problem.optimizer(**settings)
    before = problem.now()
    train(problem, opt, 40)
    assert problem.now() < 0.8 * before


@every_setting
def test_the_same_seed_gives_the_same_bits(settings: dict[str, Any]) -> None:
    ends = []
    for _ in range(2):
        problem = Classes(deep())
        train(problem, problem.optimizer(**settings), 12)
        ends.append(values(problem.model))
    assert same(*ends)


@every_setting
@pytest.mark.parametrize("when", [0, 1, 2, 3, 7])
def test_a_run_resumes_bit_for_bit(settings: dict[str, Any], when: int) -> None:
    problem = Classes(deep())
    opt = problem.optimizer(**settings)
    train(problem, opt, when)
    file = io.BytesIO()
    torch.save({"model": problem.model.state_dict(), "opt": opt.state_dict()}, file)
    train(problem, opt, 6)

    other = Classes(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)))
    torch.manual_seed(99)
    again = other.optimizer(**settings)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again.load_state_dict(saved["opt"])
    other.model.load_state_dict(saved["model"])
    train(other, again, 6)
    assert same(values(problem.model), values(other.model))


@every_setting
def test_saving_does_not_disturb_a_run(settings: dict[str, Any]) -> None:
    ends = []
    for save in (False, True):
        problem = Classes(deep())
        opt = problem.optimizer(**settings)
        for _ in range(8):
            train(problem, opt, 1)
            if save:
                opt.state_dict()
        ends.append(values(problem.model))
    assert same(*ends)


@every_setting
def test_pickle_and_deepcopy_carry_the_run(settings: dict[str, Any]) -> None:
    problem = Classes(deep())
    opt = problem.optimizer(**settings)
    train(problem, opt, 6)
    for copied in (copy.deepcopy((problem, opt)), pickle.loads(pickle.dumps((problem, opt)))):
        train(*copied, 5)
    train(problem, opt, 5)
    assert same(values(problem.model), values(copied[0].model))


@every_setting
def test_parameters_are_the_same_tensors_before_and_after(settings: dict[str, Any]) -> None:
    problem = Classes(deep())
    addresses = [p.data_ptr() for p in problem.model.parameters()]
    train(problem, problem.optimizer(**settings), 5)
    assert [p.data_ptr() for p in problem.model.parameters()] == addresses


@every_setting
def test_single_precision_stays_single(settings: dict[str, Any]) -> None:
    problem = Classes()
    opt = problem.optimizer(**settings)
    train(problem, opt, 5)
    state = opt.state_dict()["state"]
    tensors = [v for entry in state.values() for v in entry.values() if torch.is_tensor(v)]
    assert all(t.dtype == torch.float32 for t in problem.model.parameters())
    assert all(t.dtype in (torch.float32, torch.bfloat16) for t in tensors)


@every_setting
def test_the_step_returns_the_members_mean_loss(settings: dict[str, Any]) -> None:
    problem = Classes()
    opt = problem.optimizer(**settings)
    seen = []
    run = problem.closure(opt)

    def closure() -> torch.Tensor:
        seen.append(run())
        return seen[-1]

    loss = opt.step(closure)
    assert len(seen) == round_of(settings)
    assert torch.equal(loss, torch.stack(seen).detach().mean())


@every_setting
def test_a_loop_over_members_equals_the_closure(settings: dict[str, Any]) -> None:
    ends = []
    for closures in (True, False):
        problem = Classes(deep())
        opt = problem.optimizer(**settings)
        for _ in range(8):
            if closures:
                opt.step(problem.closure(opt))
                continue
            for member in opt.members():
                member.loss = problem.loss()
                member.loss.backward()
            opt.step()
        ends.append(values(problem.model))
    assert same(*ends)


@every_setting
def test_an_unused_parameter_is_left_alone(settings: dict[str, Any]) -> None:
    model = nn.ModuleDict({"used": nn.Linear(5, 3), "unused": nn.Linear(2, 2)})
    problem = Classes(model["used"])
    opt = settings.get("kind", GradientGrouping)(
        model.parameters(), **{key: value for key, value in settings.items() if key != "kind"}
    )
    before = values(model["unused"])
    train(problem, opt, 8)
    # The mean of spread members may differ from where they started in the last digit.
    for was, now in zip(before, values(model["unused"]), strict=True):
        torch.testing.assert_close(was, now, rtol=0.0, atol=1e-5) if settings.get(
            "publish"
        ) != "best" else None


@every_grouping
def test_the_diagnostics_are_numbers_a_logger_can_take(settings: dict[str, Any]) -> None:
    problem = Classes()
    opt = problem.optimizer(**settings)
    train(problem, opt, 12)
    found = opt.diagnostics
    for one in found if isinstance(found, list) else [found]:
        assert len(one.steps) == settings.get("members", 2)
        assert one.spread > 0.0
        assert one.condition >= 1.0
        assert not one.calibrating
        assert one.refused == 0
        assert one.guarded >= 0


def test_the_published_point_is_the_mean_of_the_members() -> None:
    problem = Classes()
    opt = problem.optimizer(members=3)
    train(problem, opt, 10)
    for p, entry in zip(
        problem.model.parameters(), opt.state_dict()["state"].values(), strict=True
    ):
        torch.testing.assert_close(p.data, entry["members"].mean(0))


def test_the_best_member_can_be_published() -> None:
    problem = Classes()
    opt = problem.optimizer(publish="best")
    train(problem, opt, 10)
    weight = opt.state_dict()["state"][0]["members"]
    assert any(torch.equal(problem.model.weight, member) for member in weight)


def test_groups_share_a_solve_unless_told_otherwise() -> None:
    steps = {}
    for per_group in (False, True):
        problem = Classes(deep())
        groups = [
            {"params": list(layer.parameters())} for layer in (problem.model[0], problem.model[2])
        ]
        opt = GradientGrouping(groups, per_group=per_group)
        train(problem, opt, 20)
        found = opt.diagnostics
        steps[per_group] = {one.steps for one in found} if per_group else {found.steps}
    assert len(steps[True]) == 2
    assert len(steps[False]) == 1


@every_kind
def test_a_group_can_be_added_after_steps(kind: Any) -> None:
    problem = Classes(deep())
    opt = kind(problem.model[2].parameters())
    train(problem, opt, 6)
    middle = problem.now()
    opt.add_param_group({"params": list(problem.model[0].parameters()), "weight_decay": 1e-4})
    train(problem, opt, 30)
    assert problem.now() < middle


@every_kind
def test_several_dtypes_can_be_trained_together(kind: Any) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow = nn.Linear(5, 3)
            self.wide = nn.Linear(5, 3, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.narrow(x) + self.wide(x.double())

    problem = Classes(Mixed())
    before = problem.now()
    train(problem, problem.optimizer(kind), 40)
    assert problem.now() < 0.8 * before
    assert [p.dtype for p in problem.model.parameters()] == [torch.float32] * 2 + [
        torch.float64
    ] * 2


@every_kind
def test_memory_formats_are_kept(kind: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4, 3))
    model = model.to(memory_format=torch.channels_last)
    x, y = torch.randn(12, 3, 4, 4), torch.randint(3, (12,))
    opt = kind(model.parameters())

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    before = closure().item()
    for _ in range(20):
        opt.step(closure)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert closure().item() < before


def test_members_move_along_when_the_model_is_changed() -> None:
    problem = Classes()
    opt = problem.optimizer()
    train(problem, opt, 8)
    before = opt.state_dict()["state"][0]["members"]
    with torch.no_grad():
        problem.model.weight += 1.0
    for _ in opt.members():
        break
    after = opt.state_dict()["state"][0]["members"]
    torch.testing.assert_close(after, before + 1.0)


@every_kind
def test_a_model_moved_to_another_precision_goes_on(kind: Any) -> None:
    problem = Classes()
    opt = problem.optimizer(kind)
    train(problem, opt, 8)
    before = problem.now()
    problem.model.double()
    problem.x = problem.x.double()
    train(problem, opt, 20)
    assert problem.now() < before


def test_weight_decay_is_a_quadratic_penalty() -> None:
    decayed, written = Classes(), Classes()
    train(decayed, decayed.optimizer(weight_decay=0.1), 300)
    opt = written.optimizer()
    for _ in range(300):

        def closure() -> torch.Tensor:
            opt.zero_grad()
            penalty = sum((p**2).sum() for p in written.model.parameters())
            loss = written.loss() + 0.05 * penalty
            loss.backward()
            return loss

        opt.step(closure)
    for a, b in zip(values(decayed.model), values(written.model), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_a_direction_of_ones_own() -> None:
    def signs(
        grads: torch.Tensor, thetas: torch.Tensor, state: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        return grads.sign(), {"count": state.get("count", 0) + 1}

    problem = Classes()
    before = problem.now()
    train(problem, problem.optimizer(direction=signs), 40)
    assert problem.now() < before
