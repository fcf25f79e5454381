"""Where runs are kept: a line of JSON each.

The idea. A run is written when it is done, at the end of the file, and is on the disk before the
next one is asked for. Whatever happens to the process, or to the machine, costs the runs that were
not done. A line that was cut off while it was written is left out, and its run is done again.

Conventions. The key of a run is its setting together with the *mark* of the data it was trained on,
so that files of another content never pass for those of the same name. The file is nobody else's,
but nothing in it is trusted: a line that is not a run is left out.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gradgroup.experiments.engine import Run, Setting

# Of what a line means. Lines of another version are left out.
VERSION = 1


class Key(NamedTuple):
    """What a run is found by."""

    mark: str
    """Of the data."""
    setting: Setting


class Store:
    """The runs in a file, and those that are added to it.

    Parameters
    ----------
    path : Path
        The file; it and its folder are made when the first run is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: dict[Key, Run] = {}
        self.seconds: dict[Key, float] = {}
        # What is no text cannot be a run either, and must not cost the others.
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        self._whole = text.endswith("\n") or not text
        self._take(text.splitlines())

    def add(self, found: Iterable[tuple[Key, Run]], seconds: float = 0.0) -> None:
        """Keep these runs, which took so long together; when this returns they are on the disk."""
        pairs = list(found)
        lines = [_line(key, run, seconds / len(pairs)) for key, run in pairs]
        # A line that was cut off must not swallow the one that comes after it.
        start, self._whole = "" if self._whole else "\n", False
        self._write(start + "".join(lines))
        self._whole = True
        # What is known is what another process would read.
        self._take(lines)

    def _write(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists()
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            error.filename = str(self.path)  # a full disk does not say what it had no room for
            raise
        if is_new:
            _settle(self.path.parent)

    def _take(self, lines: Iterable[str]) -> None:
        for found in map(_parsed, lines):
            if found is not None:
                key, run, seconds = found
                self.runs[key], self.seconds[key] = run, seconds


def _settle(folder: Path) -> None:
    """Have the disk know of a new file in a folder; systems that do it by themselves refuse."""
    with suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _line(key: Key, run: Run, seconds: float) -> str:
    kept = run._asdict() | {"final": run.final if math.isfinite(run.final) else None}
    record = {
        "version": VERSION,
        "mark": key.mark,
        "setting": key.setting._asdict(),
        "run": kept,
        "seconds": round(seconds, 3),
    }
    return json.dumps(record) + "\n"


def _parsed(line: str) -> tuple[Key, Run, float] | None:
    try:
        record: dict[str, Any] = json.loads(line)
        if record["version"] != VERSION:
            return None
        key = Key(record["mark"], Setting(**record["setting"]))
        hash(key)  # or it could not be one
        return key, _run(**record["run"]), float(record["seconds"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _run(losses: list[float], final: float | None, lost: bool, calls: int) -> Run:
    return Run(
        tuple(map(float, losses)), math.inf if final is None else float(final), bool(lost), calls
    )
