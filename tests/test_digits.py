"""The digits experiment: what it prints, what it writes, and how it takes a user's mistakes."""

import importlib
import re
import signal
import sys
from pathlib import Path

import pytest
import torch

import gradgroup.experiments
from gradgroup.experiments import _results, digits

TINY = ["--epochs", "1", "--seeds", "1"]
NAMES = (
    "GradientGrouping",
    "GradientGrouping, members see the same batch",
    "SGD",
    "Nesterov",
    "RMSprop",
    "Adam",
)


def written(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in ("digits.png", "digits.svg")]


@pytest.fixture(scope="module")
def data() -> digits.Data:
    return digits.load()


def result(*means: float) -> _results.Result:
    scores = (_results.Score(10.0**k, mean, 0.1, mean / 2) for k, mean in enumerate(means))
    return _results.Result("SGD", 64, tuple(scores))


def test_prints_a_table_and_draws_a_figure(tmp_path, capsys):
    folder = tmp_path / "new" / "digits"
    assert digits.main([*TINY, "--out", str(folder)]) == 0
    table = capsys.readouterr().out
    assert "1 epoch, 1 seed" in table
    rows = dict(re.findall(r"^(\S.*?)  +(64|128)  ", table, re.MULTILINE))
    assert rows == dict.fromkeys(NAMES, "64") | {NAMES[1]: "128"}
    png, svg = written(folder)
    assert png.startswith(b"\x89PNG")
    assert len(png) > 20_000
    assert svg.count(b"<path") > 20
    assert str(folder / "digits.png") in table


def test_same_arguments_give_the_same_output(tmp_path, capsys):
    outputs, figures = [], []
    for seed in (1, 2):
        torch.manual_seed(seed)  # what the caller's generator holds must not matter
        before = torch.get_rng_state()
        digits.main([*TINY, "--out", str(tmp_path)])
        assert torch.equal(torch.get_rng_state(), before)
        outputs.append(capsys.readouterr().out)
        figures.append(written(tmp_path))
    assert outputs[0] == outputs[1]
    assert figures[0] == figures[1]


def test_seeds_differ(data):
    adam = digits.contestants()[-1]
    first, second = (digits.train(adam, 0.1, seed, data, 1) for seed in (0, 1))
    assert first != second


def test_same_seed_gives_every_optimizer_the_same_start_and_batches(data, monkeypatch):
    seen = []

    def watched(optimizer, model, data, shares):
        seen.append((model.weight.detach().clone(), torch.cat(list(shares))))
        return torch.zeros(())

    monkeypatch.setattr(digits, "step", watched)
    grouping, _, *baselines = digits.contestants()
    for contestant in (grouping, *baselines):
        digits.train(contestant, contestant.rates[0], 0, data, 1)
    steps = len(seen) // (1 + len(baselines))
    assert steps == 1797 // 64
    for k, (start, batch) in enumerate(seen):
        assert torch.equal(start, seen[k % steps][0])
        assert torch.equal(batch, seen[k % steps][1])


def test_losses_are_the_means_of_what_the_optimizer_sees(data):
    """Plain gradient descent written out gives the same two numbers."""
    sgd = digits.contestants()[2]
    found = digits.train(sgd, 0.5, 0, data, 1)
    torch.manual_seed(0)
    weight = torch.nn.Linear(64, 10, bias=False).weight.detach()
    losses = []
    for batch in digits.batches(1797, 1):
        x, y = data.x[batch], torch.nn.functional.one_hot(data.y[batch])
        logits = x @ weight.T
        losses.append(float((logits.logsumexp(1) - (logits * y).sum(1)).mean()))
        weight -= 0.5 * (logits.softmax(1) - y).T @ x / len(batch)
    final = torch.nn.functional.cross_entropy(data.x @ weight.T, data.y)
    assert found.training == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert found.final == pytest.approx(float(final), rel=1e-4)


def test_grids_have_seven_rates_a_factor_of_root_ten_apart():
    for contestant in digits.contestants()[2:]:
        rates = torch.tensor(contestant.rates)
        torch.testing.assert_close(rates[1:] / rates[:-1], torch.full((6,), 10**0.5))


def test_best_and_worst_rate():
    found = result(2.0, 0.5, 3.0)
    assert (found.best.rate, found.worst.rate) == (10.0, 100.0)
    line = _results.cells(found)
    assert line[2:] == ("10", "0.500 ± 0.100", "0.250", "3.000 (at 100)")


def test_says_when_a_grid_may_be_too_narrow():
    assert not any("edge" in line for line in _results.notes([result(2.0, 0.5, 3.0)]))
    assert any("SGD is best at the edge" in line for line in _results.notes([result(0.4, 0.5)]))


def test_interrupt_gives_one_line_and_its_own_exit_code(tmp_path, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(digits, "train", interrupt)
    assert digits.main(["--out", str(tmp_path)]) == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "Interrupted before the figure was complete.\n"
    assert list(tmp_path.iterdir()) == []


def test_interrupt_waits_for_the_end_of_an_import():
    steps = []

    def importing():
        with digits.interrupt_put_off():
            signal.raise_signal(signal.SIGINT)
            steps.append("went on")
        steps.append("was not stopped")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        importing()
    assert steps == ["went on"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    "arguments", [["--epochs", "0"], ["--seeds", "-1"], ["--epochs", "ten"], ["--out", __file__]]
)
def test_a_mistake_gets_one_sentence(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        digits.main(arguments)
    assert stopped.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert arguments[0] in shown.err
    assert arguments[1] in shown.err


@pytest.mark.parametrize("package", ["matplotlib", "sklearn", "tqdm", "torch"])
def test_a_missing_package_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*gradgroup\[experiments\]"):
        importlib.reload(gradgroup.experiments)
