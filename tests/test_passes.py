"""The compiled passes compute what their plain twins compute, and can be done without."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from gradgroup.core import _sweeps
from gradgroup.torch import GradientGrouping, _passes
from gradgroup.torch._passes import CompiledPasses, Passes, passes

DTYPES = [torch.float32, torch.float64]
# One block of columns and a bit, and enough of them for a team of threads.
COLUMNS = [1, 3, 8_193, 60_001]


def _rows(members: int, columns: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(members + columns)
    return torch.randn(2 * members, columns, dtype=dtype, generator=generator)


def _both(rows: Tensor) -> tuple[Passes, Passes]:
    compiled = passes(rows)
    assert isinstance(compiled, CompiledPasses)
    return compiled, Passes(rows.clone())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("members", [2, 3, 4, 5, 8])
def test_products_agree(members: int, columns: int, dtype: torch.dtype) -> None:
    compiled, plain = _both(_rows(members, columns, dtype))
    exact = plain.products(wide=True)
    allowed = 32 * torch.finfo(dtype).eps * columns  # which is about the squared length of a row
    for _ in range(2):  # what the first call left behind does not matter
        assert compiled.products() == pytest.approx(exact, abs=allowed, rel=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("members", [2, 3, 8])
@pytest.mark.parametrize("served", [None, 1])
@pytest.mark.parametrize("own_direction", [False, True])
def test_moves_agree(
    members: int, columns: int, dtype: torch.dtype, served: int | None, own_direction: bool
) -> None:
    rows = _rows(members, columns, dtype)
    steps = [0.1 * i - 0.3 for i in range(members)]
    # Directions of one's own may have any layout in memory.
    along = _rows(columns, members, dtype)[:columns].T if own_direction else None
    start = columns // 3
    arrived = []
    for each in _both(rows):
        point = torch.full((1, columns - start), torch.nan, dtype=dtype)
        each.move(steps, served, [(start, point)], each.grads if along is None else along)
        arrived.append((each.rows, point))
    (compiled_rows, compiled_point), (plain_rows, plain_point) = arrived
    torch.testing.assert_close(compiled_rows, plain_rows)
    torch.testing.assert_close(compiled_point, plain_point)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_compiled_products_show_nan_and_inf(bad: float) -> None:
    rows = _rows(2, 20_000, torch.float32)
    rows[3, 12_345] = bad
    found = passes(rows).products()
    assert not torch.from_numpy(found[1]).isfinite().any()
    assert torch.from_numpy(found[0, :3]).isfinite().all()


def test_the_same_number_of_threads_gives_the_same_bits() -> None:
    first, second = (passes(_rows(4, 200_000, torch.float32)).products() for _ in range(2))
    assert (first == second).all()


def test_what_the_compiled_passes_cannot_take_is_left_to_pytorch() -> None:
    assert type(passes(torch.zeros(4, 9, dtype=torch.bfloat16))) is Passes
    assert type(passes(torch.zeros(4, 9, device="meta"))) is Passes


def _trained(monkeypatch: pytest.MonkeyPatch, *, plain: bool) -> Tensor:
    torch.manual_seed(0)
    x, y = torch.randn(64, 5), torch.randn(64, 2)
    model = torch.nn.Sequential(torch.nn.Linear(5, 30), torch.nn.Linear(30, 2))
    opt = GradientGrouping(model.parameters(), members=3, direction="momentum")

    def closure() -> Tensor:
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    with monkeypatch.context() as patch:
        if plain:
            patch.setattr(_passes, "compiled_for", lambda *_: None)
        for _ in range(10):
            opt.step(closure)
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def test_a_run_without_numba_is_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, plain = (_trained(monkeypatch, plain=plain) for plain in (False, True))
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-4)


def test_numba_is_optional() -> None:
    code = """
import sys
sys.modules["numba"] = None  # as if it were not installed
import torch
from gradgroup.torch import GradientGrouping
p = torch.nn.Parameter(torch.ones(3))
opt = GradientGrouping([p])
def closure():
    opt.zero_grad()
    loss = p.square().sum()
    loss.backward()
    return loss
for _ in range(9):
    opt.step(closure)
assert p.abs().max() < 0.1, p
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_machine_with_nowhere_to_keep_compiled_code_will_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(function: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr("numba.core.ccallback.FunctionCache", nowhere)
    _sweeps._loops.cache_clear()
    rows = _rows(2, 100, torch.float32)
    found = passes(rows).products()
    _sweeps._loops.cache_clear()
    assert found == pytest.approx(Passes(rows).products(), rel=1e-5, abs=1e-4)


def test_numba_is_not_imported_before_there_are_members() -> None:
    code = "import sys, gradgroup.torch; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
