"""Studies: nothing is done twice, and it does not matter where or in how many pieces."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import joblib
import pytest

from gradgroup.experiments.datasets import BadDataError
from gradgroup.experiments.engine import GROUPING, Run, Setting
from gradgroup.experiments.study import Key, Store, _jobs, _sweep, sweep
from gradgroup.experiments.study._jobs import Job, jobs_of
from tests import studies

SMALL = [
    Setting("digits", optimizer, rate, seed, epochs=1)
    for optimizer in ("SGD", "Adam")
    for seed in range(2)
    for rate in (0.01, 0.1, 1.0)
] + [
    Setting("digits", GROUPING, None, seed, epochs=1, members=2, batch=32, spread=spread)
    for seed in range(2)
    for spread in (0.1, 1.0)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Setting]:
    """The settings that are done, one after the other, in this process."""
    found: list[Setting] = []

    def do(job: Job) -> list[Run]:
        found.extend(job.settings)
        return _jobs.do(job)

    monkeypatch.setattr(_sweep, "do", do)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[Setting, Run]:
    return sweep(SMALL, Store(tmp_path_factory.mktemp("small") / "runs.jsonl"), jobs=1)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> dict[Setting, Run]:
    """The study of the processes that are killed, undisturbed."""
    store = Store(tmp_path_factory.mktemp("study") / "runs.jsonl")
    return sweep(studies.SETTINGS, store, jobs=1)


def assert_alike(some: dict[Setting, Run], others: dict[Setting, Run]) -> None:
    """Equal but for the order in which a library for matrices adds."""
    assert set(some) == set(others)
    for setting, run in some.items():
        assert run.losses == pytest.approx(others[setting].losses, rel=1e-4)
        assert run.final == pytest.approx(others[setting].final, rel=1e-4)
        assert run[2:] == others[setting][2:]


# What is done.


def test_every_run_is_done_once_and_kept(path: Path, done: list[Setting]) -> None:
    store = Store(path)
    found = sweep(SMALL, store, jobs=1)
    assert list(found) == SMALL
    assert sorted(done, key=str) == sorted(SMALL, key=str)
    assert {key.setting: run for key, run in Store(path).runs.items()} == found


def test_runs_in_the_store_are_not_done_again(path: Path, done: list[Setting]) -> None:
    first = sweep(SMALL[:5], Store(path), jobs=1)
    done.clear()
    again = sweep(SMALL, Store(path), jobs=1)
    assert sorted(done, key=str) == sorted(SMALL[5:], key=str)
    assert first.items() <= again.items()
    done.clear()
    assert sweep(SMALL, Store(path), jobs=1) == again
    assert done == []


def test_a_setting_that_is_asked_for_twice_is_done_once(path: Path, done: list[Setting]) -> None:
    sweep([SMALL[0], SMALL[0]], Store(path), jobs=1)
    assert done == [SMALL[0]]


def test_nothing_to_do_starts_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "Parallel", None)
    assert sweep([], Store(path)) == {}
    assert not path.exists()


def test_a_job_is_kept_before_the_next_one_begins(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def do(job: Job) -> list[Run]:
        kept.append(len(Store(path).runs))
        return [Run((1.0,), 1.0, False, 1) for _ in job.settings]

    monkeypatch.setattr(_sweep, "do", do)
    sweep(studies.SETTINGS[:6], Store(path), jobs=1)
    assert kept == [0, 2, 4]


def test_what_was_done_before_an_error_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def do(job: Job) -> list[Run]:
        if job.grid.like.optimizer == "Adam":
            raise OSError("the disk is gone")
        return _jobs.do(job)

    monkeypatch.setattr(_sweep, "do", do)
    jobs = jobs_of(SMALL, None)
    before = [s for job in jobs for s in job.settings]
    before = before[: next(k for k, s in enumerate(before) if s.optimizer == "Adam")]
    with pytest.raises(OSError, match="the disk is gone"):
        sweep(SMALL, Store(path), jobs=1)
    assert [key.setting for key in Store(path).runs] == before


def test_the_store_knows_what_the_runs_have_cost(path: Path) -> None:
    store = Store(path)
    sweep(SMALL[:2], store, jobs=1)
    assert all(0.0 <= seconds < 60.0 for seconds in store.seconds.values())


# It does not matter how.


def test_results_do_not_depend_on_the_number_of_processes(
    path: Path, undisturbed: dict[Setting, Run]
) -> None:
    assert sweep(SMALL, Store(path), jobs=2) == undisturbed


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_results_do_not_depend_on_how_runs_are_split_into_jobs(
    path: Path, undisturbed: dict[Setting, Run], order: slice
) -> None:
    found: dict[Setting, Run] = {}
    for setting in SMALL[order]:
        found |= sweep([setting], Store(path), jobs=1)
    assert_alike(found, undisturbed)


def test_results_do_not_depend_on_how_many_seeds_are_stacked(
    path: Path, undisturbed: dict[Setting, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jobs, "STACKED", 1)
    assert len(jobs_of(SMALL, None)) == 6
    assert_alike(sweep(SMALL, Store(path), jobs=1), undisturbed)


def test_a_study_leaves_one_machine_by_joblib_s_backends(
    path: Path, undisturbed: dict[Setting, Run]
) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        found = sweep(SMALL, Store(path))
    assert found == undisturbed


# Data.


@pytest.fixture
def other_digits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Data of another content under the same name."""
    real = _jobs.load("digits")
    forget()
    monkeypatch.setattr(_jobs, "load", lambda name, folder: real._replace(x=real.x[::-1].copy()))
    yield
    forget()


def forget() -> None:
    _jobs.images_of.cache_clear()
    _jobs.mark_of.cache_clear()


def test_data_of_another_content_are_not_taken_for_those_of_the_same_name(
    path: Path, undisturbed: dict[Setting, Run], request: pytest.FixtureRequest
) -> None:
    first = sweep(SMALL[:1], Store(path), jobs=1)
    request.getfixturevalue("other_digits")
    other = sweep(SMALL[:1], Store(path), jobs=1)
    assert other != first
    assert len(Store(path).runs) == 2
    forget()
    assert sweep(SMALL[:1], Store(path), jobs=1) == other


def test_workers_that_have_other_data_than_we_do_are_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sweep, "_timed", elsewhere)
    with pytest.raises(BadDataError, match=r"^Where runs are done there are other files of digits"):
        sweep(SMALL[:1], Store(path), jobs=1)


def elsewhere(job: Job, sweeper: int) -> _sweep.Done:
    run = Run((1.0,), 1.0, False, 1)
    return _sweep.Done(job, [(Key("other", setting), run) for setting in job.settings], 0.1)


# Killed.


def test_a_study_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, study: dict[Setting, Run]
) -> None:
    process = studies.start(studies.SWEEP, tmp_path, jobs=1)
    studies.send(process, signal.SIGKILL)
    assert_goes_on(tmp_path / "runs.jsonl", study)


def test_workers_end_when_the_process_of_the_sweep_alone_is_killed(
    tmp_path: Path, study: dict[Setting, Run]
) -> None:
    process = studies.start(studies.SWEEP, tmp_path, jobs=2)
    try:
        process.kill()
        studies.wait_until(lambda: not studies.is_alive(process.pid), seconds=20.0)
    finally:
        studies.kill_group(process.pid)
        process.communicate()
    assert_goes_on(tmp_path / "runs.jsonl", study)


def assert_goes_on(path: Path, study: dict[Setting, Run]) -> None:
    """Some runs are done; the same study does the rest, and comes to what it always does."""
    assert 0 < len(Store(path).runs) < len(study)
    assert sweep(studies.SETTINGS, Store(path), jobs=2) == study
    assert len(path.read_text().splitlines()) == len(study), "a run was done again"


# The bar.


def test_a_terminal_shows_how_long_it_will_take(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    termios = pytest.importorskip("termios")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        sweep(studies.SETTINGS[:6], Store(path), jobs=1)
        shown = screen.read(100_000).decode()
    lines = [line for line in shown.split("\r") if line.startswith("Training")]
    assert re.search(r"^Training:   0%\|.*\| 00:00 gone, \? left", lines[0])
    assert re.search(r"^Training: 100%\|.*\| 00:0\d gone, 00:00 left, 3 of 3 jobs", lines[-1])


def test_elsewhere_nothing_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(SMALL[:1], Store(path), jobs=1)
    assert capsys.readouterr() == ("", "")
