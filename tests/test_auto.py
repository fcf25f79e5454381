"""AutoGrouping: the rule, how it starts, what it is indifferent to, and where it stops."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gradgroup.core import _auto
from gradgroup.core._auto import BETA, FACTOR, Order, Pace, Phase, Sums, Track, Why
from gradgroup.torch import AutoGrouping
from tests.problems import Classes, Quadratic, log_spaced, same, values


def batches(x: Tensor, y: Tensor, size: int, epochs: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(epochs)]
    return [(x[rows], y[rows]) for order in orders for rows in order.split(size)]


class Regression:
    """Least squares with noise, whose optimum is known."""

    def __init__(self, *, kappa: float = 100.0, samples: int = 2000, d: int = 20) -> None:
        generator = torch.Generator().manual_seed(0)
        scales = torch.logspace(0, -0.5 * math.log10(kappa), d)
        self.x = torch.randn(samples, d, generator=generator) * scales
        truth = torch.randn(d, 1, generator=generator)
        self.y = self.x @ truth + 0.3 * torch.randn(samples, 1, generator=generator)
        self.best = self.now(torch.linalg.lstsq(self.x, self.y).solution)

    def now(self, weight: Tensor) -> float:
        return 0.5 * float((self.x.double() @ weight.double() - self.y).square().mean())

    def train(
        self,
        *,
        start: float = 0.0,
        features: float = 1.0,
        height: float = 1.0,
        offset: float = 0.0,
        epochs: int = 20,
        size: int = 50,
        **options: Any,
    ) -> tuple[float, AutoGrouping]:
        """The loss at the end, in the data's own scale."""
        torch.manual_seed(1)
        weight = nn.Parameter(start * torch.randn(self.x.shape[1], 1) / features)
        opt = AutoGrouping([weight], **options)
        for x, y in batches(features * self.x, self.y, size, epochs):

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                opt.zero_grad()
                loss = height * (0.5 * (x @ weight - y).square().mean() + offset)
                loss.backward()
                return loss

            opt.step(closure)
        return self.now(features * weight.detach()), opt


def test_it_finds_the_optimum_of_least_squares() -> None:
    problem = Regression()
    loss, _ = problem.train()
    assert loss < 1.002 * problem.best


@pytest.mark.parametrize("start", [1e-3, 1.0, 1e2])
def test_it_starts_from_anywhere(start: float) -> None:
    problem = Regression()
    loss, _ = problem.train(start=start, epochs=40)
    assert loss < 1.05 * problem.best


@pytest.mark.parametrize("height", [1e-6, 1e-3, 1e3, 1e6])
def test_the_unit_of_the_loss_does_not_matter(height: float) -> None:
    problem = Regression()
    assert problem.train(height=height)[0] == pytest.approx(problem.train()[0], rel=1e-4)


@pytest.mark.parametrize("features", [1e-6, 1e-3, 1e3, 1e6])
def test_the_unit_of_the_features_does_not_matter(features: float) -> None:
    problem = Regression()
    assert problem.train(features=features)[0] == pytest.approx(problem.train()[0], rel=1e-4)


@pytest.mark.parametrize("offset", [-1e3, 1e3])
def test_a_constant_in_the_loss_only_costs_a_few_tries(offset: float) -> None:
    problem = Regression()
    assert problem.train(offset=offset)[0] < 1.002 * problem.best


def test_permuted_parameters_are_treated_alike() -> None:
    ends = []
    for order in (torch.arange(20), torch.randperm(20)):
        problem = Regression()
        problem.x = problem.x[:, order]
        ends.append(problem.train()[0])
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


def test_more_members_mean_less_noise() -> None:
    """Four gradients a step, each of a batch of its own, in as many steps."""
    problem = Regression(kappa=1e4)
    losses = []
    for members in (1, 4):
        torch.manual_seed(1)
        weight = nn.Parameter(torch.zeros(20, 1))
        opt = AutoGrouping([weight], members=members)
        data = iter(batches(problem.x, problem.y, 20, 2 * members))

        def closure(opt: AutoGrouping = opt, weight: Tensor = weight, data: Any = data) -> Tensor:
            x, y = next(data)
            opt.zero_grad()
            loss = 0.5 * (x @ weight - y).square().mean()
            loss.backward()
            return loss

        for _ in range(200):
            opt.step(closure)
        losses.append(problem.now(weight.detach()))
    assert losses[1] < losses[0]


@pytest.mark.parametrize("kappa", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_exact_gradients(kappa: float, scale: float) -> None:
    problem = Quadratic(log_spaced(50, kappa), length=scale, height=scale)
    opt = AutoGrouping([problem.x])
    highest = 0.0
    for _ in range(300):
        highest = max(highest, float(opt.step(problem.closure)))
    assert problem.now() < 0.01 * problem.start
    assert highest < 4.0 * problem.start


# The start.


def line(pace: Pace, slope: float) -> tuple[Pace, float]:
    return _auto.judge(pace, slope)


def test_a_try_ends_where_the_two_gradients_meet() -> None:
    """On a parabola the slope vanishes where the secant says, whether before or behind."""
    tried = Pace(phase=Phase.TRY, slope=2.0, reach=1.0)
    assert line(tried, 1.0)[1] == 2.0
    assert line(tried, -2.0)[1] == 0.5
    assert line(tried, 1.0)[0].phase is Phase.GO


@pytest.mark.parametrize(("slope", "factor"), [(1.9, 4.0), (2.5, 32.0), (-1e9, 1 / 32)])
def test_a_secant_is_not_trusted_too_far(slope: float, factor: float) -> None:
    pace, found = line(Pace(phase=Phase.TRY, slope=2.0, reach=1.0), slope)
    assert (found, pace.phase, pace.reach) == (factor, Phase.TRY, factor)


def test_tries_come_to_an_end() -> None:
    pace = Pace(phase=Phase.TRY, slope=1.0, reach=1.0)
    for _ in range(_auto.MOST_TRIES):
        pace, _ = line(pace, pace.slope)
    assert line(pace, pace.slope)[0].phase is Phase.GO


def test_nothing_is_served_before_it_was_tried() -> None:
    problem = Classes()
    before = values(problem.model)
    opt = problem.optimizer(AutoGrouping)
    opt.step(problem.closure(opt))
    assert same(before, values(problem.model))
    assert opt.diagnostics.calibrating
    opt.step(problem.closure(opt))
    assert not same(before, values(problem.model))
    assert not opt.diagnostics.calibrating


def test_the_loss_need_not_be_known() -> None:
    problem = Classes()
    before = problem.now()
    opt = problem.optimizer(AutoGrouping)
    for _ in range(60):
        for _member in opt.members():
            problem.loss().backward()
        assert opt.step() is None
    assert problem.now() < 0.5 * before


def test_a_start_without_a_gradient_is_waited_out() -> None:
    weight = nn.Parameter(torch.zeros(3))
    opt = AutoGrouping([weight])
    on = 0.0

    def closure() -> Tensor:
        opt.zero_grad()
        loss = on * (weight - 1.0).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        opt.step(closure)
    assert torch.equal(weight, torch.zeros(3))
    on = 1.0
    for _ in range(100):
        opt.step(closure)
    torch.testing.assert_close(weight.detach(), torch.ones(3), atol=0.05, rtol=0.0)


def test_a_try_that_overflows_is_shortened() -> None:
    weight = nn.Parameter(torch.zeros(1))
    opt = AutoGrouping([weight])

    def closure() -> Tensor:
        opt.zero_grad()
        loss = (1e6 + torch.exp(3.0 * weight - 9.0) - weight).sum()  # the first try is far too long
        loss.backward()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(300):
            opt.step(closure)
    assert weight.item() == pytest.approx(3.0 - math.log(3.0) / 3.0, abs=0.1)


# The pace.


def test_the_step_is_the_cauchy_schwarz_bound() -> None:
    pace = Pace(phase=Phase.GO, seen=9, reach=2.0, trace=1.0, push=1e-9)
    weights = sum(w * w for w in range(1, 11))
    assert _auto.order(pace, 1).step == pytest.approx(FACTOR * 2.0 * 10 / math.sqrt(weights))


def test_no_step_is_longer_than_the_way_so_far() -> None:
    pace = Pace(phase=Phase.GO, seen=2, reach=2.0, trace=5.0, push=500.0)
    assert _auto.order(pace, 1).step == pytest.approx(0.2)


def test_the_reach_grows_only_with_approval() -> None:
    pace = Pace(phase=Phase.GO, seen=4, reach=1.0)
    told = Order(0.1, 0.1, 0.1, 0.0, 1.0, 1.0, capped=False, look=True)
    farther = Sums(trace=1.0, push=1.0, verdict=0.0, reach=9.0)
    assert _auto.learn(pace, farther._replace(verdict=0.5), told).reach == 3.0
    assert _auto.learn(pace, farther._replace(verdict=-0.5), told).reach == 1.0
    assert _auto.learn(pace, farther._replace(verdict=0.5), told._replace(look=False)).reach == 1.0


def test_noise_that_hides_the_gradient_is_averaged_out() -> None:
    """At the optimum of ½‖w‖² from the start, under noise a hundred times as large."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.zeros(200))
    opt = AutoGrouping([weight])
    for _ in range(4000):
        for member in opt.members():
            weight.grad = weight.detach() + 100.0 * torch.randn(200, generator=generator)
            member.loss = 0.5 * weight.detach().square().sum()
        opt.step()
    assert weight.detach().square().mean().sqrt() < 3.0 * 100.0 / math.sqrt(4000)


def test_the_diagnostics_say_why_the_step_is_what_it_is() -> None:
    _, opt = Regression().train(epochs=2)
    found = opt.diagnostics
    assert found.step > 0.0
    assert found.reach > 0.0
    assert found.noise > 0.0
    assert found.why in {reason.value for reason in Why}
    assert not found.calibrating
    assert found.refused == 0


@pytest.mark.parametrize(
    ("pace", "why"),
    [
        (Pace(), Why.LOOKING),
        (Pace(phase=Phase.TRY), Why.TRYING),
        (Pace(phase=Phase.GO, verdict=1.0, grown=True), Why.FARTHER),
        (Pace(phase=Phase.GO, verdict=1.0), Why.NO_FARTHER),
        (Pace(phase=Phase.GO, verdict=-1.0), Why.DISAPPROVED),
        (Pace(phase=Phase.GO, verdict=1.0, grown=True, capped=True), Why.CAPPED),
    ],
)
def test_why_is_a_sentence(pace: Pace, why: Why) -> None:
    assert pace.why is why
    assert why.value.endswith(".")


# Refused steps.


def test_a_gradient_that_is_not_finite_moves_nothing() -> None:
    problem = Classes()
    opt = problem.optimizer(AutoGrouping)
    for _ in range(5):
        opt.step(problem.closure(opt))
    before = problem.model.state_dict(), opt.state_dict()
    before = [v.clone() for v in before[0].values()], before[1]["state"][0]["stand"].clone()

    def bad() -> Tensor:
        opt.zero_grad()
        loss = problem.loss()
        loss.backward()
        problem.model.weight.grad[0, 0] = float("nan")
        return loss

    with pytest.warns(RuntimeWarning, match="the step was refused and the parameters are unchang"):
        opt.step(bad)
    assert same(before[0], list(problem.model.state_dict().values()))
    assert torch.equal(before[1], opt.state_dict()["state"][0]["stand"])
    assert opt.diagnostics.refused == 1
    opt.step(problem.closure(opt))
    assert not same(before[0], list(problem.model.state_dict().values()))


def test_a_point_of_gradients_that_stays_bad_comes_back_to_the_average() -> None:
    problem = Classes()
    opt = problem.optimizer(AutoGrouping)
    for _ in range(5):
        opt.step(problem.closure(opt))

    def distance() -> float:
        entry = opt.state_dict()["state"][0]
        return float((entry["stand"] - problem.model.weight.detach()).norm())

    before = distance()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(3):

            def bad() -> Tensor:
                problem.closure(opt)()
                return torch.tensor(float("inf"))

            opt.step(bad)
    assert distance() == pytest.approx(0.25 * before, rel=1e-3)


# Parameters that are changed from outside, and odd ones.


def test_a_constraint_can_be_applied_after_every_step() -> None:
    """The best weights under ``w ≥ 0``, by projection."""
    problem = Regression(kappa=1.0)
    weight = nn.Parameter(torch.zeros(20, 1))
    opt = AutoGrouping([weight])
    for x, y in batches(problem.x, problem.y, 50, 20):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            opt.zero_grad()
            loss = 0.5 * (x @ weight - y).square().mean()
            loss.backward()
            return loss

        opt.step(closure)
        with torch.no_grad():
            weight.clamp_(min=0.0)
    from scipy.optimize import nnls

    best = torch.tensor(nnls(problem.x.double().numpy(), problem.y.double().numpy()[:, 0])[0])
    assert problem.now(weight.detach()) < 1.05 * problem.now(best[:, None])


def test_weight_decay_is_decoupled() -> None:
    """It takes the same part off every number, whatever its gradient."""
    weight = nn.Parameter(torch.full((4,), 10.0))
    opt = AutoGrouping([weight], weight_decay=0.1)
    target = torch.tensor([10.0, 10.0, 10.0, 0.0])
    for k in range(400):

        def closure(k: int = k) -> Tensor:
            opt.zero_grad()
            noise = torch.randn(4, generator=torch.Generator().manual_seed(k))
            loss = 0.5 * (weight - target + noise).square().sum()
            loss.backward()
            return loss

        opt.step(closure)
    decayed = weight.detach()[:3]
    assert (decayed < 9.5).all()
    assert decayed.std() < 0.5
    assert abs(weight[3].item()) < 0.5


def test_weight_decay_is_stable_however_strong() -> None:
    problem = Regression()
    loss, opt = problem.train(weight_decay=1e6)
    assert loss < 1.01 * problem.now(torch.zeros(20, 1))
    assert opt.diagnostics.refused == 0


def test_weight_decay_can_be_changed_on_the_way() -> None:
    problem = Classes()
    opt = problem.optimizer(AutoGrouping)
    for _ in range(30):
        opt.step(problem.closure(opt))
    before = float(values(problem.model)[0].norm())
    opt.param_groups[0]["weight_decay"] = 100.0
    for _ in range(100):
        opt.step(problem.closure(opt))
    assert float(values(problem.model)[0].norm()) < 0.5 * before


def test_parameters_without_numbers_or_axes() -> None:
    empty, single = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.tensor(2.0))
    opt = AutoGrouping([empty, single])

    def closure() -> Tensor:
        opt.zero_grad()
        loss = (single - 1.0) ** 2 + empty.sum()
        loss.backward()
        return loss

    for _ in range(60):
        opt.step(closure)
    assert single.item() == pytest.approx(1.0, abs=0.02)


def test_an_interrupted_closure_loses_nothing() -> None:
    problem = Classes()
    opt = problem.optimizer(AutoGrouping)
    for _ in range(6):
        opt.step(problem.closure(opt))
    before = values(problem.model)

    def closure() -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opt.step(closure)
    assert same(before, values(problem.model))
    opt.step(problem.closure(opt))
    assert not same(before, values(problem.model))


def test_parameters_that_are_used_now_and_then() -> None:
    problem = Classes()
    extra = nn.Parameter(torch.zeros(3))
    opt = AutoGrouping([problem.model.weight, extra, problem.model.bias])
    before = problem.now()
    for k in range(80):

        def closure(k: int = k) -> Tensor:
            opt.zero_grad()
            loss = problem.loss()
            if k % 3 == 0:
                loss = loss + (extra - 1.0).square().sum()
            loss.backward()
            return loss

        opt.step(closure)
    assert problem.now() < 0.5 * before
    assert (extra.detach() - 1.0).abs().max() < 0.5


def test_a_group_without_any_gradient() -> None:
    problem = Classes()
    idle = nn.Parameter(torch.ones(4))
    opt = AutoGrouping([{"params": list(problem.model.parameters())}, {"params": [idle]}])
    before = problem.now()
    for _ in range(60):
        opt.step(problem.closure(opt))
    assert problem.now() < 0.5 * before
    assert torch.equal(idle, torch.ones(4))


def test_gradients_that_are_laid_out_otherwise() -> None:
    ends = []
    for transposed in (False, True):
        problem = Classes()
        opt = problem.optimizer(AutoGrouping)
        for _ in range(10):
            for member in opt.members():
                member.loss = problem.loss()
                member.loss.backward()
            if transposed:
                weight = problem.model.weight
                weight.grad = weight.grad.t().contiguous().t()
            opt.step()
        ends.append(values(problem.model))
    assert same(*ends)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"members": 0}, "a whole number of gradients, at least 1, but got members=0"),
        ({"members": 1.5}, "but got members=1.5"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0, but got weight_decay=-0.1"),
        ({"weight_decay": float("nan")}, "but got weight_decay=nan"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AutoGrouping([nn.Parameter(torch.ones(3))], **options)


def test_a_scheduler_is_told_that_there_is_no_learning_rate() -> None:
    with pytest.raises(KeyError, match="no learning rate"):
        torch.optim.lr_scheduler.StepLR(AutoGrouping([nn.Parameter(torch.ones(3))]), 10)


def test_a_grad_scaler_that_has_unscaled_for_clipping() -> None:
    problem = Classes()
    opt = problem.optimizer(AutoGrouping)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = problem.now()
    for _ in range(40):
        for member in opt.members():
            member.loss = problem.loss()
            scaler.scale(member.loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(problem.model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    assert problem.now() < 0.5 * before


# The sweep.


def arrays(size: int, dtype: Any, seed: int) -> tuple[Track, np.ndarray]:
    random = np.random.default_rng(seed)
    made = [random.normal(size=size).astype(dtype) for _ in range(5)]
    made[2] = made[2] ** 2
    return Track(*made), random.normal(size=size).astype(dtype)


TOLD = Order(
    step=0.3, mix=0.2, share=0.1, floor=1e-3, shrink=0.9, unit=0.5, capped=False, look=True
)


def test_the_average_and_the_noise_are_weighted_means() -> None:
    """Over a few steps, the sweep is what the module's head says."""
    random = np.random.default_rng(0)
    grads = random.normal(size=(6, 7))
    start = random.normal(size=7)
    track = Track(start, start, grads[0] ** 2, start, grads[0])
    scouts, pace = [start], Pace(phase=Phase.GO, seen=1, reach=1.0, trace=7.0, push=1.0)
    noise = [grads[0] ** 2]
    for t in range(1, 6):
        told = _auto.order(pace, 7)
        track, sums = _auto.sweep(track, grads[t], told)
        pace = _auto.learn(pace, sums, told)
        noise.append(0.5 * (grads[t] - grads[t - 1]) ** 2)
        weights = np.arange(1, t + 2.0)
        v = np.average(noise, axis=0, weights=weights**2)
        scouts.append(scouts[-1] - told.step * grads[t] / (np.sqrt(v) + told.floor))
        average = np.average(scouts, axis=0, weights=weights)
        np.testing.assert_allclose(track.noise, v)
        np.testing.assert_allclose(track.average, average)
        np.testing.assert_allclose(track.stand, average + (1 - BETA) * (scouts[-1] - average))


@settings(deadline=None, max_examples=30)
@given(
    size=st.integers(1, 5000),
    wide=st.booleans(),
    look=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_the_compiled_sweep_agrees_with_the_plain_one(
    size: int, wide: bool, look: bool, seed: int
) -> None:
    compiled = pytest.importorskip("gradgroup.core._auto_sweep")
    from gradgroup.core._threads import place

    dtype = np.float64 if wide else np.float32
    track, grad = arrays(size, dtype, seed)
    last = torch.from_numpy(track.last)[None].to(torch.float64 if wide else torch.bfloat16)
    kept = last.to(torch.float64 if wide else torch.float32)[0].numpy()
    plain, sums = _auto.sweep(track._replace(last=kept), grad, TOLD)

    rows = np.stack([track.stand, track.noise, track.start])
    bits = last.numpy() if wide else last.view(torch.uint16).numpy()
    average = track.average[None].copy()
    told = TOLD._replace(look=look)
    found = compiled.Sweep(rows, bits).sweep(0, place(average), place(grad[None]), told, 1)

    close = {"rtol": 1e-9 if wide else 2e-5, "atol": 1e-9 if wide else 2e-5}
    for ours, theirs in zip(
        (average[0], *rows), (plain.average, plain.stand, plain.noise, plain.start), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, **close)
    assert torch.equal(last[0], torch.from_numpy(plain.last).to(last.dtype))
    seen = 4 if look else 2
    scale = max(abs(float(value)) for value in sums)
    np.testing.assert_allclose(found[:seen], sums[:seen], rtol=1e-4, atol=1e-5 * scale)


def test_the_compiled_sum_of_squares_is_not_finite_where_a_gradient_is_not() -> None:
    compiled = pytest.importorskip("gradgroup.core._auto_sweep")
    from gradgroup.core._threads import place

    sweep = compiled.Sweep(np.zeros((3, 5), np.float32), np.zeros((1, 5), np.uint16))
    grad = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]], np.float32)
    assert sweep.squares(place(grad), 2.0, 1) == 220.0
    for bad in (np.nan, np.inf, -np.inf, 3e38):
        grad[0, 3] = bad
        assert not math.isfinite(sweep.squares(place(grad), 1.0, 1))


def test_a_run_without_numba_is_the_same_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradgroup.torch import _trail

    problem = Regression()
    compiled = problem.train(epochs=3)[0]
    monkeypatch.setattr(_trail, "compiled_for", lambda *_: None)
    assert problem.train(epochs=3)[0] == pytest.approx(compiled, rel=1e-4)


def test_the_sweep_uses_nothing_beyond_the_array_api() -> None:
    strict = pytest.importorskip("array_api_strict")
    track, grad = arrays(11, np.float64, 0)
    plain, sums = _auto.sweep(track, grad, TOLD)
    strictly, strict_sums = _auto.sweep(
        Track(*(strict.asarray(row) for row in track)), strict.asarray(grad), TOLD
    )
    for ours, theirs in zip(strictly, plain, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs)
    np.testing.assert_allclose([float(s) for s in strict_sums], sums)
