"""The benchmark of quality: what it counts, how it searches, what it keeps."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from benchmarks import quality
from benchmarks.problems import Problem, problem
from benchmarks.quality import Job, Row, Store, Trial, available, widened, with_ratios
from benchmarks.rivals import AUTO, RIVALS, Method
from benchmarks.robustness import CHANGES
from benchmarks.training import LOST, Meter, Run, train
from benchmarks.variants import Rule, Variant
from gradgroup.experiments.datasets import MissingDataError, _places

SGD, GROUPING = RIVALS[0], RIVALS[-1]


def small() -> Problem:
    found = problem("digits 01")
    return found._replace(x=found.x[:640], y=found.y[:640])


def test_every_method_sees_as_many_samples_as_its_epochs_have() -> None:
    seen: list[int] = []

    class Counting(torch.optim.SGD):
        def step(self, closure):  # type: ignore[no-untyped-def, override]
            seen.append(1)
            closure()
            return closure()

    twice = Method("two gradients a step", partial(Counting, lr=0.1), shares=1)
    problem = small()
    with pytest.raises(StopIteration):  # a second gradient must be of a share of its own
        train(problem, twice, epochs=1)
    seen.clear()
    train(problem, twice._replace(shares=2), epochs=2)
    assert len(seen) == 2 * 10


def test_the_running_loss_is_the_mean_over_samples_and_the_final_one_over_all() -> None:
    problem = small()
    run = train(problem, SGD, 1e-12, epochs=2)
    assert run.running == pytest.approx(math.log(10), rel=1e-4)
    assert run.final == pytest.approx(math.log(10), rel=1e-4)


def test_a_run_that_blows_up_is_over_and_infinite() -> None:
    meter = Meter(start=1.0, budget=100)
    meter.add(torch.tensor(2.0 * LOST), 10)
    assert meter.lost
    assert meter.run(final=1.0) == Run(math.inf, math.inf, math.inf)
    meter.add(torch.tensor(math.nan), 10)
    assert meter.lost


def test_the_highest_loss_leaves_out_the_first_hundredth() -> None:
    meter = Meter(start=2.0, budget=400)
    for k in range(400):
        meter.add(torch.tensor(50.0 if k < 4 else 8.0 if 100 <= k < 104 else 1.0), 1)
    assert meter.run(final=1.0).highest == pytest.approx(4.0)


@pytest.mark.parametrize("change", [c for c in CHANGES if c != "features rotated"])
def test_units_and_orders_do_not_matter_to_autogrouping(change: str) -> None:
    problem = small()
    as_it_is, changed = train(problem, AUTO), train(CHANGES[change](problem), AUTO)
    assert changed.running == pytest.approx(as_it_is.running, rel=1e-3)
    assert changed.final == pytest.approx(as_it_is.final, rel=1e-3)


def test_autogrouping_is_the_plain_rule() -> None:
    """But for looking at its distance from the start in every fourth step after a while."""
    problem = small()
    plain = train(problem, Method("plain", partial(Variant, rule=Rule())), epochs=6)
    fast = train(problem, AUTO, epochs=6)
    assert fast.running == pytest.approx(plain.running, rel=2e-3)
    assert fast.final == pytest.approx(plain.final, rel=1e-2)


def test_it_is_ahead_of_tuned_rivals_on_digits() -> None:
    """The smallest case of the benchmark, against Adam and Nesterov at their best rates there."""
    digits = problem("digits 01")
    ours = train(digits, AUTO)
    assert ours.running < train(digits, RIVALS[1], 1.0).running
    assert ours.running < train(digits, RIVALS[3], 0.1).running


def test_members_share_a_batch() -> None:
    sizes: list[int] = []
    problem = small()

    class Watched(Problem):
        def loss(self, weight: Tensor, rows: Tensor | slice) -> Tensor:
            if isinstance(rows, Tensor):
                sizes.append(len(rows))
            return super().loss(weight, rows)

    train(Watched(*problem), GROUPING, epochs=1)
    assert sizes == [32] * 20


# Grids.


def test_a_grid_is_widened_until_the_best_is_within_it() -> None:
    trial = Trial("digits 01", SGD)
    assert len(trial.rates) == 7
    falling, valley = [7.0, 6, 5, 4, 3, 2, 1], [3.0, 2, 1, 0.5, 1, 2, 3]
    assert widened(trial, [valley, valley]) == trial
    wider = widened(trial, [valley, falling])
    assert wider.rates[:7] == trial.rates
    assert len(wider.rates) == 9
    assert widened(trial, [falling[::-1], valley]).rates[2:] == trial.rates


def test_a_method_without_a_rate_has_no_grid() -> None:
    trial = Trial("digits 01", AUTO)
    assert trial.rates == [None]
    assert widened(trial, [[1.0], [1.0]]) == trial


def test_ratios_are_to_the_best_rival() -> None:
    def row(method: str, mean: float) -> Row:
        return Row("case", method, "final", None, mean, 0.0, math.nan)

    found = with_ratios([row(AUTO.name, 1.0), row("Adam", 2.0), row("SGD, best rate", 4.0)])
    assert [r.ratio for r in found] == [0.5, 1.0, 2.0]


# What is kept, and what is missing.


def test_runs_that_are_done_are_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    job = Job("digits 01", "Adam", None, 0, 5, 64)
    Store(path).add(job, Run(1.0, 2.0, 3.0))
    again = Store(path)
    assert again.runs == {job: Run(1.0, 2.0, 3.0)}
    quality.do_all([job], again, workers=1)
    assert len(path.read_text().splitlines()) == 1


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    job = Job("digits 01", "Adam", None, 0, 5, 64)
    Store(path).add(job, Run(1.0, 2.0, 3.0))
    with path.open("a") as file:
        file.write('[["digits 01", "SGD, be')
    again = Store(path)
    assert again.runs == {job: Run(1.0, 2.0, 3.0)}
    again.add(job._replace(seed=1), Run(4.0, 5.0, 6.0))
    assert len(Store(path).runs) == 2


def test_data_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADGROUP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_places, "SYSTEM", tmp_path)
    problem.cache_clear()
    with pytest.raises(MissingDataError, match=r"^The files of fashion-mnist were not found in "):
        problem("fashion 01")
    assert available(["mnist 01", "digits 01"]) == ["digits 01"]
    assert "mnist 01 is left out. The files of mnist were not f" in capsys.readouterr().err


def test_the_model_of_a_run_starts_at_zero() -> None:
    starts = []

    class Noted(torch.optim.SGD):
        def __init__(self, params: list[nn.Parameter], lr: float) -> None:
            params = list(params)
            starts.append(params[0].detach().clone())
            super().__init__(params, lr)

    train(small(), Method("noted", partial(Noted, lr=0.1)), epochs=1)
    assert not starts[0].any()
