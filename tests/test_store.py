"""The store of runs: what is written is there, and nothing else is taken for a run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradgroup.experiments.engine import Run, Setting
from gradgroup.experiments.study import Key, Store

KEY = Key("0badcafe", Setting("digits", "SGD", 0.1, seed=3, epochs=2))
RUN = Run((1.5, 0.1 + 0.2), 1 / 3, False, 56)
LOST = Run((2.0,), math.inf, True, 30)


def other(seed: int) -> Key:
    return KEY._replace(setting=KEY.setting._replace(seed=seed))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study" / "runs.jsonl"


def test_a_store_begins_empty_and_makes_no_file(path: Path) -> None:
    assert Store(path).runs == {}
    assert not path.parent.exists()


def test_runs_come_back_as_they_were_to_the_last_bit(path: Path) -> None:
    Store(path).add([(KEY, RUN), (other(4), LOST)], seconds=3.0)
    again = Store(path)
    assert again.runs == {KEY: RUN, other(4): LOST}
    assert again.seconds == {KEY: 1.5, other(4): 1.5}


def test_every_field_of_a_setting_is_part_of_the_key(path: Path) -> None:
    whole = Setting("svhn", "GG (paper)", None, 1, 7, "standard", 4, 16, True, 0.1)
    assert all(a != b for a, b in zip(whole[:-2], Setting("", "", 0.0)[:-2], strict=True))
    Store(path).add([(Key("m", whole), RUN)])
    assert Store(path).runs == {Key("m", whole): RUN}


def test_a_store_knows_what_it_has_added(path: Path) -> None:
    store = Store(path)
    store.add([(KEY, RUN)], seconds=2.0)
    assert (store.runs, store.seconds) == ({KEY: RUN}, {KEY: 2.0})


def test_what_is_known_is_what_another_process_would_read(path: Path) -> None:
    store = Store(path)
    store.add([(KEY, RUN._replace(final=math.nan))], seconds=1 / 3)
    again = Store(path)
    assert (again.runs, again.seconds) == (store.runs, store.seconds)


def test_an_infinite_loss_is_null_in_the_file_which_json_has_no_number_for(path: Path) -> None:
    Store(path).add([(KEY, LOST)])
    assert "Infinity" not in path.read_text()
    assert json.loads(path.read_text())["run"]["final"] is None


def test_the_last_run_of_a_key_counts(path: Path) -> None:
    Store(path).add([(KEY, LOST)])
    Store(path).add([(KEY, RUN)])
    assert Store(path).runs == {KEY: RUN}


def test_data_of_another_content_are_another_key(path: Path) -> None:
    Store(path).add([(KEY, RUN)])
    assert KEY._replace(mark="deadbeef") not in Store(path).runs


# Durability.


def test_a_run_is_on_the_disk_when_add_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def fsync(number: int) -> None:
        is_file = os.path.samestat(os.fstat(number), path.stat())
        synced.append(path.read_text() if is_file else "the folder")

    monkeypatch.setattr(os, "fsync", fsync)
    store = Store(path)
    store.add([(KEY, RUN)])
    # A file is lost with the folder that does not know of it.
    assert synced == [path.read_text(), "the folder"]
    store.add([(other(4), RUN)])
    assert synced[2:] == [path.read_text()]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.test_store import KEY, RUN
from gradgroup.experiments.study import Store
Store(Path(sys.argv[1])).add([(KEY, RUN)])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_survives_the_process(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60)
    assert done.returncode == -9
    assert Store(path).runs == {KEY: RUN}


def test_a_line_that_was_cut_off_is_left_out_wherever_it_was_cut(path: Path) -> None:
    Store(path).add([(KEY, RUN), (other(4), RUN)])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert Store(path).runs == {KEY: RUN}


@pytest.mark.parametrize("left", [0, 1, 100])
def test_a_line_that_was_cut_off_does_not_swallow_the_next(path: Path, left: int) -> None:
    Store(path).add([(KEY, RUN)])
    path.write_text(path.read_text()[:left])
    Store(path).add([(other(4), RUN)])
    Store(path).add([(other(5), RUN)])
    assert set(Store(path).runs) == {other(4), other(5)}


def test_a_last_line_that_lacks_nothing_but_its_end_counts(path: Path) -> None:
    Store(path).add([(KEY, RUN)])
    path.write_text(path.read_text().rstrip("\n"))
    Store(path).add([(other(4), RUN)])
    assert set(Store(path).runs) == {KEY, other(4)}


def test_a_write_that_fails_half_way_does_not_swallow_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(path)

    def full(number: int) -> None:
        os.truncate(number, 50)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            store.add([(KEY, RUN)])
    store.add([(other(4), RUN)])
    assert Store(path).runs == store.runs == {other(4): RUN}


# What is no run.


def changed(**fields: Any) -> str:
    """A good line, but for some of its fields."""
    good = {
        "version": 1,
        "mark": KEY.mark,
        "setting": KEY.setting._asdict(),
        "run": RUN._asdict(),
        "seconds": 1.0,
    }
    return json.dumps(good | fields)


GARBAGE = {
    "empty": "",
    "no JSON": "runs:",
    "a number": "1",
    "a list": "[1, 2]",
    "null": "null",
    "an empty object": "{}",
    "another version": changed(version=0),
    "a version to come": changed(version=2),
    "a setting of another program": changed(setting={"optimizer": "SGD"}),
    "a setting with more to it": changed(setting=KEY.setting._asdict() | {"depth": 3}),
    "a setting that cannot be a key": changed(setting=KEY.setting._asdict() | {"rate": [0.1]}),
    "a run without losses": changed(run=RUN._asdict() | {"losses": None}),
    "a run with words for losses": changed(run=RUN._asdict() | {"losses": ["low"]}),
    "a run with a word for a loss": changed(run=RUN._asdict() | {"final": "low"}),
    "no time": changed(seconds=None),
    "too deep": "[" * 100_000,
    "zeros, as a file system leaves them": "\0" * 100,
}


@pytest.mark.parametrize("line", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_run_is_left_out(path: Path, line: str) -> None:
    Store(path).add([(KEY, RUN)])
    with path.open("a") as file:
        file.write(line + "\n")
    Store(path).add([(other(4), RUN)])
    assert Store(path).runs == {KEY: RUN, other(4): RUN}


def test_the_good_line_of_these_tests_is_one(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(changed() + "\n")
    assert Store(path).runs == {KEY: RUN}


def test_bytes_that_are_no_text_are_left_out(path: Path) -> None:
    Store(path).add([(KEY, RUN)])
    with path.open("ab") as file:
        file.write(b"\xff\xfe\x00garbage\x80\n")
    Store(path).add([(other(4), RUN)])
    assert Store(path).runs == {KEY: RUN, other(4): RUN}


# Places that cannot be written to.


def test_a_folder_in_the_place_of_the_file_is_said(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match=r"runs\.jsonl"):
        Store(path)


def test_a_file_in_the_place_of_the_folder_is_said(path: Path) -> None:
    path.parent.write_text("")
    with pytest.raises(OSError, match="study"):
        Store(path).add([(KEY, RUN)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no disk that is always full")
def test_a_full_disk_is_said_with_the_name_of_the_file(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    store = Store(path.with_name("none"))
    store.path = path
    with pytest.raises(OSError, match=r"No space left on device.*runs\.jsonl"):
        store.add([(KEY, RUN)])
