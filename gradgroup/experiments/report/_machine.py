"""Where and with what a study was run."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from gradgroup import __version__

PACKAGES = ("numpy", "torch", "numba", "joblib", "scikit-learn", "matplotlib")


def machine() -> list[tuple[str, str]]:
    """The processor and the system, then versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        ("Processor", f"{processor()}, {cores} cores"),
        ("System", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"),
        ("gradgroup", __version__),
        *((name, version(name)) for name in PACKAGES),
    ]


def processor() -> str:
    """Its name, where the system tells."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
