"""A small study on digits, and processes that do it, to be interrupted and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gradgroup.experiments.engine import Setting

ROOT = Path(__file__).parent.parent
# Twelve jobs of a tenth of a second each, of two runs.
SETTINGS = [
    Setting("digits", "SGD", rate, epochs=200 + k) for k in range(12) for rate in (0.1, 1.0)
]

SWEEP = """
import sys
from pathlib import Path
from gradgroup.experiments.study import Store, sweep
from tests.studies import SETTINGS
sweep(SETTINGS, Store(Path(sys.argv[1]) / "runs.jsonl"), jobs=int(sys.argv[2]))
"""

# The same as a command; its report would need more runs than these.
COMPARE = """
import sys
from gradgroup import cli
from gradgroup.experiments import _compare
from tests.studies import SETTINGS
_compare.sensitivity = lambda name, level: SETTINGS
sys.exit(cli.main(["compare", "digits", "--out", sys.argv[1], "--jobs", sys.argv[2]]))
"""


def start(program: str, folder: Path, jobs: int) -> subprocess.Popen[str]:
    """A process in a group of its own, as a shell starts it; over to its first run."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), str(jobs)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    runs = folder / "runs.jsonl"
    wait_until(lambda: process.poll() is not None or (runs.exists() and runs.stat().st_size > 0))
    assert process.poll() is None, process.communicate()
    return process


def wait_until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Give it time."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def send(process: subprocess.Popen[str], number: int) -> tuple[str, str]:
    """Tell all processes of the group, as a terminal does; what has been written."""
    os.killpg(process.pid, number)
    return process.communicate(timeout=60)


def is_alive(group: int) -> bool:
    """Whether any process of a group does anything yet."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listed.stdout.splitlines())
    return any(row[0] == str(group) and not row[1].startswith("Z") for row in rows)


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
