"""Batch normalisation, dropout, mixed precision, clipping, vectorised evaluation, compilation."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradgroup.torch import GradientGrouping
from tests.problems import Classes, every_kind, same, values


def train(problem: Classes, opt: Any, steps: int) -> None:
    for _ in range(steps):
        opt.step(problem.closure(opt))


@every_kind
def test_batch_norm_statistics_move_once_for_every_member(kind: Any) -> None:
    norm = nn.BatchNorm1d(5)
    problem = Classes(nn.Sequential(norm, nn.Linear(5, 3)))
    opt = problem.optimizer(kind, members=3)
    train(problem, opt, 4)
    assert norm.num_batches_tracked == 12


@every_kind
def test_batch_norm_trains(kind: Any) -> None:
    problem = Classes(nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)))
    before = problem.now()
    train(problem, problem.optimizer(kind), 60)
    problem.model.eval()
    assert problem.now() < 0.8 * before


def test_dropout_draws_a_mask_for_every_member_and_is_taken_for_noise() -> None:
    problem = Classes(nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3)))
    opt = problem.optimizer()
    gradients = []
    for _ in opt.members():
        problem.loss().backward()
        gradients.append(problem.model[1].weight.grad.clone())
    assert not torch.equal(*gradients)
    opt.step()
    assert opt._solves[0].opening.noise > 0.0


@every_kind
def test_dropout_trains(kind: Any) -> None:
    problem = Classes(nn.Sequential(nn.Dropout(0.1), nn.Linear(5, 3)))
    before = problem.now()
    train(problem, problem.optimizer(kind), 60)
    assert problem.now() < 0.8 * before


def scaled_rounds(
    problem: Classes, opt: GradientGrouping, scaler: torch.amp.GradScaler, rounds: int
) -> None:
    for _ in range(rounds):
        for member in opt.members():
            loss = problem.loss()
            scaler.scale(loss).backward()
            member.loss = loss
        scaler.step(opt)
        scaler.update()


@pytest.mark.parametrize("settings", [{}, {"direction": "adam"}, {"weight_decay": 0.01}])
def test_a_grad_scaler_changes_nothing_but_the_range(settings: dict[str, Any]) -> None:
    ends = []
    for scale in (None, 1024.0):
        problem = Classes()
        opt = problem.optimizer(**settings)
        if scale is None:
            train(problem, opt, 10)
        else:
            scaled_rounds(problem, opt, torch.amp.GradScaler("cpu", init_scale=scale), 10)
        ends.append(values(problem.model))
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("overflowing", [0, 1])
def test_a_grad_scaler_learns_of_an_overflow_in_any_member(overflowing: int) -> None:
    problem = Classes()
    opt = problem.optimizer()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = values(problem.model)
    for member in opt.members():
        member.loss = problem.loss()
        scaler.scale(member.loss).backward()
        if member.index == overflowing:
            problem.model.weight.grad[0, 0] = float("inf")
    with pytest.warns(RuntimeWarning, match="refused"):
        scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert same(before, values(problem.model))


def test_unscaling_one_member_alone_is_refused() -> None:
    problem = Classes()
    opt = problem.optimizer()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in opt.members():
        scaler.scale(problem.loss()).backward()
    scaler.unscale_(opt)
    with pytest.raises(RuntimeError, match="reaches the gradients of one member only"):
        scaler.step(opt)


@every_kind
def test_bfloat16_autocast_trains(kind: Any) -> None:
    problem = Classes()
    opt = problem.optimizer(kind)
    before = problem.now()

    def closure() -> Tensor:
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = problem.loss()
        loss.backward()
        return loss

    for _ in range(40):
        opt.step(closure)
    assert problem.now() < 0.8 * before


@every_kind
def test_bfloat16_parameters_train(kind: Any) -> None:
    problem = Classes(nn.Linear(5, 3).bfloat16())
    problem.x = problem.x.bfloat16()
    before = problem.now()
    train(problem, problem.optimizer(kind), 40)
    assert problem.now() < 0.9 * before


def test_gradients_can_be_clipped_while_a_member_is_the_model() -> None:
    problem = Classes()
    opt = problem.optimizer(spread=0.1)
    for member in opt.members():
        member.loss = problem.loss()
        member.loss.backward()
        nn.utils.clip_grad_norm_(problem.model.parameters(), 1e-3)
    grads = torch.cat([bucket.grads for bucket in opt._solves[0].buckets], dim=1)
    assert (grads.norm(dim=1) <= 1.001e-3).all()
    opt.step()


def batched_and_looped(model: nn.Module, *, common: bool) -> list[list[Tensor]]:
    ends = []
    for batched in (False, True):
        torch.manual_seed(0)
        problem = Classes(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)))
        problem.model.load_state_dict(model.state_dict())
        opt = problem.optimizer()
        for _ in range(8):
            if batched:
                batch = (problem.x, problem.y)
                opt.step_batched(
                    problem.model,
                    lambda m, b: nn.functional.cross_entropy(m(b[0]), b[1]),
                    batch,
                    common=common,
                )
            else:
                opt.step(problem.closure(opt) if common else problem.shares(opt, 2))
        ends.append(values(problem.model))
    return ends


@pytest.mark.parametrize("common", [False, True])
def test_the_vectorised_path_equals_the_loop(common: bool) -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    looped, batched = batched_and_looped(model, common=common)
    for a, b in zip(looped, batched, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def test_the_vectorised_path_shares_dropout_masks_with_the_samples() -> None:
    for common, alike in ((True, True), (False, False)):
        problem = Classes(nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3)))
        opt = problem.optimizer()
        x, y = (t if common else torch.cat([t, t]) for t in (problem.x, problem.y))
        opt.step_batched(problem.model, cross_entropy, (x, y), common=common)
        assert (opt._solves[0].opening.noise < 1e-10) == alike


def test_what_cannot_be_vectorised_is_refused() -> None:
    problem = Classes(nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)))
    opt = problem.optimizer()
    with pytest.raises(RuntimeError, match=r"running statistics of 0 \(BatchNorm1d\)"):
        opt.step_batched(problem.model, cross_entropy, (problem.x, problem.y))
    problem.model[0].eval()
    opt.step_batched(problem.model, cross_entropy, (problem.x, problem.y))


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda m, p: (m, cross_entropy, (p.x[:63], p.y[:63])), ValueError, "shared equally by 2"),
        (lambda m, p: (m, lambda m, b: m(b[0]), (p.x, p.y)), TypeError, "must return one number"),
        (lambda m, p: (m, cross_entropy, ("x", p.y)), TypeError, "Every leaf of batch"),
        (lambda m, p: (nn.Linear(5, 3), cross_entropy, (p.x, p.y)), ValueError, "do not belong"),
    ],
)
def test_the_vectorised_path_says_what_is_wrong(
    call: Any, error: type[Exception], sentence: str
) -> None:
    problem = Classes()
    opt = problem.optimizer()
    with pytest.raises(error, match=sentence):
        opt.step_batched(*call(problem.model, problem))


def test_evaluating_between_steps_sees_the_published_point() -> None:
    problem = Classes()
    opt = problem.optimizer()
    train(problem, opt, 10)
    inside = []
    for _ in opt.members():
        inside.append(values(problem.model))
        problem.loss().backward()
    outside = values(problem.model)
    for a, b, mean in zip(*inside, outside, strict=True):
        torch.testing.assert_close((a + b) / 2, mean)


def test_shares_may_run_out_before_the_members_do() -> None:
    problem = Classes()
    opt = problem.optimizer()
    with contextlib.suppress(StopIteration):
        for x, y, _ in zip(problem.x.chunk(2), problem.y.chunk(2), opt.members(), strict=False):
            problem.loss(x, y).backward()
    opt.step()


@every_kind
def test_step_hooks_run(kind: Any) -> None:
    problem = Classes()
    opt = problem.optimizer(kind)
    calls: list[str] = []
    opt.register_step_pre_hook(lambda *_: calls.append("before"))
    opt.register_step_post_hook(lambda *_: calls.append("after"))
    train(problem, opt, 2)
    assert calls == ["before", "after"] * 2


@every_kind
def test_a_compiled_model_is_not_compiled_again_for_every_member(kind: Any) -> None:
    problem = Classes()
    compiled: list[object] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    opt = problem.optimizer(kind)
    problem.model = torch.compile(problem.model, backend=backend)
    before = problem.now()
    graphs = len(compiled)
    train(problem, opt, 20)
    assert problem.now() < 0.8 * before
    assert len(compiled) <= graphs + 1  # one for training beside the one without gradients
