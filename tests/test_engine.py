"""Runs that are trained as a stack are the runs that PyTorch's optimizers make one by one."""

from __future__ import annotations

import tracemalloc
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

from gradgroup.experiments.datasets import Images, load
from gradgroup.experiments.engine import BATCH, GROUPING, Grid, Run, Setting, Stack, _lbfgs
from gradgroup.experiments.engine._batches import Pixels, rows_of, start, steps_of
from gradgroup.experiments.engine._plain import Plain
from tests.reference import gradient_grouping

RATES = ((0.01, None), (0.1, None), (1.0, None))
FIRST_ORDER = ("SGD", "Nesterov", "RMSprop", "Adam")


@pytest.fixture(scope="module")
def images() -> Images:
    """Ten steps an epoch."""
    digits = load("digits")
    return digits._replace(x=digits.x[:650], y=digits.y[:650])


def stacked(
    images: Images, like: Setting, seeds: tuple[int, ...], variants: Any, dtype: Any = np.float64
) -> dict[Setting, Run]:
    grid = Grid(like, seeds, tuple(variants))
    return dict(zip(grid.settings, Stack(images, grid, dtype).train(), strict=True))


def assert_same(found: Run, expected: Run, rel: float) -> None:
    assert found.losses == pytest.approx(expected.losses, rel=rel)
    assert found.final == pytest.approx(expected.final, rel=rel)
    assert (found.lost, found.calls) == (expected.lost, expected.calls)


# Rows of a stack.


@pytest.mark.parametrize("optimizer", FIRST_ORDER)
def test_each_row_is_the_run_of_torch_optim(images: Images, optimizer: str) -> None:
    runs = stacked(images, Setting("digits", optimizer, epochs=4), (0, 3), RATES)
    assert len(runs) == 6
    for setting, run in runs.items():
        assert_same(run, Plain(images, setting, np.float64).train(), rel=1e-9)


@pytest.mark.parametrize("optimizer", FIRST_ORDER)
def test_in_single_precision_too(images: Images, optimizer: str) -> None:
    runs = stacked(images, Setting("digits", optimizer, epochs=4), (0,), RATES[:2], np.float32)
    for setting, run in runs.items():
        assert_same(run, Plain(images, setting).train(), rel=1e-3)


@pytest.mark.parametrize("rate", [1e-3, 1e-2, 0.1])
def test_each_row_is_the_run_of_torchs_lbfgs(images: Images, rate: float) -> None:
    """Over 200 iterations: the history of 100 pairs is full after half of them.

    It is chaotic: what is 1e-13 apart after a step is 1e-7 apart in the end.
    """
    (setting, run), *_ = stacked(
        images, Setting("digits", "L-BFGS", epochs=1), (0,), ((rate, None), (1e-4, None))
    ).items()
    assert_same(run, Plain(images, setting, np.float64).train(), rel=1e-5)


def test_lbfgs_may_go_back_to_many_batches(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose samples it then multiplies with vectors instead of with each other."""
    like = Setting("digits", "L-BFGS", epochs=1)
    (few,) = stacked(images, like, (0,), ((1e-2, None),)).values()
    monkeypatch.setattr(_lbfgs, "MOST_PAGES", 0)
    (many,) = stacked(images, like, (0,), ((1e-2, None),)).values()
    assert_same(many, few, rel=1e-6)


def test_lbfgs_stops_where_torchs_does_on_a_batch_that_is_solved() -> None:
    """Two classes that one pixel tells apart: gradients vanish, and it takes fewer of them."""
    x = np.zeros((128, 4), np.uint8)
    x[::2, 0], x[1::2, 1] = 200, 200
    easy = Images("easy", x, np.arange(128) % 2, 2, 255)
    setting = Setting("easy", "L-BFGS", 1.0, epochs=12)
    (run,) = stacked(easy, setting, (0,), ((1.0, None),)).values()
    expected = Plain(easy, setting, np.float64).train()
    assert run.calls == expected.calls < 12 * 2 * 20
    assert run.losses[:3] == pytest.approx(expected.losses[:3], rel=1e-6)


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("members", [2, 3, 4])
def test_grouping_is_the_papers_algorithm(images: Images, members: int, common: bool) -> None:
    setting = Setting("digits", GROUPING, epochs=1, members=members, batch=16, common=common)
    stack = Stack(images, Grid(setting, (0, 1), ((None, 1.0), (None, 0.3))), np.float64)
    stack.train()
    served = stack.weights.reshape(2, members, 2, -1)
    for seed in (0, 1):
        for run, spread in enumerate((1.0, 0.3)):
            one = setting._replace(seed=seed, spread=spread)
            expected = by_reference(images, one)
            # The algorithm amplifies rounding.
            atol = 1e-6 * np.abs(expected).max()
            np.testing.assert_allclose(served[seed, :, run], expected, rtol=0, atol=atol)


def by_reference(images: Images, setting: Setting) -> np.ndarray[Any, Any]:
    """All members after one epoch of the plainest form of Algorithm 1."""
    pixels = Pixels(images.x, images.top, setting.pixels, np.float64)
    rows = iter(rows_of(setting, len(images.x), 0).reshape(-1, setting.batch))

    def gradient(theta: torch.Tensor) -> torch.Tensor:
        batch = next(rows)
        weight = theta.reshape(images.outputs, -1).detach().requires_grad_()
        x, y = torch.from_numpy(pixels.rows(batch)), torch.from_numpy(images.y[batch])
        (found,) = torch.autograd.grad(torch.nn.functional.cross_entropy(x @ weight.T, y), weight)
        return found.reshape(-1)

    theta = start(setting, images.outputs, images.x.shape[1]).reshape(setting.members, -1)
    steps = steps_of(len(images.x))
    return gradient_grouping(torch.from_numpy(theta).T, gradient, rounds=steps).T.numpy()


def test_our_own_optimizers_are_trained_by_the_same_loop(images: Images) -> None:
    """They see the batches that a baseline sees, and get to about where it does."""
    adam = Plain(images, Setting("digits", "Adam", 0.1, epochs=5)).train()
    auto = Plain(images, Setting("digits", "AutoGrouping", epochs=5)).train()
    like = Setting("digits", "GradientGrouping", epochs=5, members=2, batch=32)
    group = Plain(images, like).train()
    assert auto.training < adam.training
    assert group.losses[-1] < 0.5 * group.losses[0]
    assert (auto.calls, group.calls) == (50, 100)


def test_the_paper_by_torch_starts_as_far_apart_as_a_stack(images: Images) -> None:
    like = Setting("digits", GROUPING, members=2, batch=32, spread=3.0)
    optimizer = Plain(images, like).optimizer
    optimizer.step(one_loss(optimizer))
    drawn = start(like, images.outputs, images.x.shape[1])
    (state,) = optimizer.state_dict()["state"].values()
    assert np.std(drawn[0] - drawn[1]) == pytest.approx(
        float((state["members"][0] - state["members"][1]).std()), rel=0.1
    )


def one_loss(optimizer: torch.optim.Optimizer) -> Any:
    (weight,) = optimizer.param_groups[0]["params"]

    def closure() -> torch.Tensor:
        weight.grad = torch.zeros_like(weight)
        return torch.tensor(1.0)

    return closure


# Neighbours.


def test_a_run_that_blows_up_is_recorded_and_does_no_harm(images: Images) -> None:
    like = Setting("digits", "SGD", epochs=3)
    alone = stacked(images, like, (0, 1), RATES)
    beside = stacked(images, like, (0, 1), (*RATES, (1e6, None), (1e30, None)))
    for setting, run in alone.items():
        assert_same(beside[setting], run, rel=1e-12)
    for rate in (1e6, 1e30):
        lost = beside[like._replace(rate=rate)]
        assert lost.lost
        assert lost.losses == ()
        assert lost.final == lost.training == np.inf


def test_one_seed_may_blow_up_where_another_does_not(images: Images) -> None:
    like = Setting("digits", "SGD", epochs=2)
    stack = Stack(images, Grid(like, (0, 1), ((0.1, None),)), np.float64)
    stack.weights[0] = np.nan
    lost, sound = stack.train()
    assert lost.lost
    assert_same(sound, *stacked(images, like, (1,), ((0.1, None),)).values(), rel=1e-12)


@pytest.mark.parametrize("optimizer", ["SGD", "L-BFGS"])
def test_a_stack_may_blow_up_whole(images: Images, optimizer: str) -> None:
    like = Setting("digits", optimizer, epochs=2)
    (run,) = stacked(images, like, (0,), ((1e30, None),), np.float32).values()
    assert run.lost


def test_a_group_without_any_number_left_does_not_stop_its_neighbours(images: Images) -> None:
    like = Setting("digits", GROUPING, epochs=1, members=2, batch=32)
    spreads = ((None, 1.0), (None, 1e30))
    sound, lost = stacked(images, like, (0,), spreads, np.float32).values()
    assert lost.lost
    assert not sound.lost


# Batches and starts.


def test_the_seed_decides_the_batches_whatever_the_optimizer() -> None:
    one = Setting("digits", "SGD", 0.1, seed=5)
    two = Setting("digits", GROUPING, seed=5, members=2, batch=32)
    rows = rows_of(one, 1000, 3)
    assert np.array_equal(rows.reshape(15, 64), rows_of(two, 1000, 3).reshape(15, 64))
    assert not np.array_equal(rows, rows_of(one._replace(seed=6), 1000, 3))
    assert not np.array_equal(rows, rows_of(one, 1000, 4))


def test_no_sample_is_seen_twice_in_an_epoch() -> None:
    rows = rows_of(Setting("digits", "SGD", 0.1), 1000, 0)
    assert rows.shape == (1000 // BATCH, 1, BATCH)
    assert len(np.unique(rows)) == rows.size


def test_members_with_more_samples_take_as_many_steps() -> None:
    rows = rows_of(Setting("digits", GROUPING, members=10, batch=32), 1000, 0)
    assert rows.shape == (15, 10, 32)
    assert all(len(np.unique(pair)) == pair.size for pair in rows.reshape(15, 5, 64)[:, 0])


def test_members_may_divide_a_batch_or_have_it_in_common() -> None:
    divided = rows_of(Setting("digits", GROUPING, members=6, batch=10), 1000, 0)
    assert divided.shape == (15, 6, 10)
    assert len(np.unique(divided)) == divided.size
    common = rows_of(Setting("digits", GROUPING, members=3, batch=32, common=True), 1000, 0)
    assert all(np.array_equal(common[:, 0], common[:, k]) for k in (1, 2))


def test_baselines_start_where_the_first_member_does() -> None:
    group = start(Setting("digits", GROUPING, seed=2, members=3), 10, 64)
    assert np.array_equal(start(Setting("digits", "SGD", 0.1, seed=2), 10, 64)[0], group[0])
    assert np.abs(group).max() <= 1.0 / np.sqrt(64)
    assert len({member.tobytes() for member in group}) == 3
    wide = start(Setting("digits", GROUPING, seed=2, members=3, spread=10.0), 10, 64)
    np.testing.assert_allclose(wide, 10.0 * group)


# Pixels.


def test_pixels_are_made_of_bytes_batch_by_batch(images: Images) -> None:
    unit = Pixels(images.x, images.top, "unit").rows(np.array([[3, 5], [0, 1]]))
    assert unit.dtype == np.float32
    np.testing.assert_allclose(unit[0, 1], images.x[5] / images.top, rtol=1e-6)
    standard = Pixels(images.x, images.top, "standard").rows(np.arange(len(images.x)))
    assert standard.mean() == pytest.approx(0.0, abs=1e-5)
    assert standard.std() == pytest.approx(1.0, rel=1e-5)


def test_no_floating_point_copy_of_all_pixels_is_made() -> None:
    x = np.random.default_rng(0).integers(0, 256, (12_800, 400), dtype=np.uint8)
    big = Images("big", x, np.arange(len(x)) % 10, 10, 255)
    grid = Grid(Setting("big", "SGD", epochs=1, pixels="standard"), (0,), ((0.1, None),))
    tracemalloc.start()
    Stack(big, grid).train()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes


def test_the_same_setting_gives_the_same_bits(images: Images) -> None:
    like = Setting("digits", "Adam", epochs=2)
    first, second = (stacked(images, like, (0,), RATES, np.float32) for _ in range(2))
    assert first == second


def test_cycles_are_not_needed_but_for_lbfgs(images: Images) -> None:
    """A run by PyTorch hands every closure call the next member's samples."""
    run = Plain(images, Setting("digits", "GradientGrouping", members=2, batch=32))
    seen = []
    original = run.model.forward
    run.model.forward = lambda x: (seen.append(x), original(x))[1]  # type: ignore[method-assign]
    rows = rows_of(run.setting, len(images.x), 0)[0]
    run.step(rows)
    expected = cycle(torch.from_numpy(run.pixels.rows(rows)))
    assert all(torch.equal(x, next(expected)) for x in seen)
    assert len(seen) == 2
