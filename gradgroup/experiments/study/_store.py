"""Where runs are kept: a line of JSON each.

The idea. A run is written when it is done, at the end of the file, and is on the disk before the
next one is asked for. Whatever happens to the process, or to the machine, costs the runs that were
not done. A line that was cut off while it was written is left out, and its run is done again.

Conventions. The key of a run is its setting together with the *mark* of the data it was trained on,
so that files of another content never pass for those of the same name.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
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
        self._whole = True
        self.runs: dict[Key, Run] = {}
        self.seconds: dict[Key, float] = {}
        for key, run, seconds in self._read() if path.exists() else ():
            self.runs[key], self.seconds[key] = run, seconds

    def add(self, found: Iterable[tuple[Key, Run]], seconds: float = 0.0) -> None:
        """Keep these runs, which took so long together; when this returns they are on the disk."""
        pairs = list(found)
        each = seconds / len(pairs)
        lines = "".join(_line(key, run, each) for key, run in pairs)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            # A line that was cut off must not swallow the one that comes after it.
            file.write(lines if self._whole else "\n" + lines)
            file.flush()
            os.fsync(file.fileno())
        self._whole = True
        self.runs.update(pairs)
        self.seconds.update((key, each) for key, _ in pairs)

    def _read(self) -> Iterator[tuple[Key, Run, float]]:
        text = self.path.read_text()
        self._whole = text.endswith("\n") or not text
        for line in text.splitlines():
            found = _parsed(line)
            if found is not None:
                yield found


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
        run = Run(**record["run"])
        key = Key(record["mark"], Setting(**record["setting"]))
        seconds = float(record["seconds"])
    except (ValueError, KeyError, TypeError):
        return None
    final = math.inf if run.final is None else run.final
    return key, run._replace(losses=tuple(run.losses), final=final), seconds
