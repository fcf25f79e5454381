"""Which data sets are here, as a table for a terminal."""

from __future__ import annotations

from pathlib import Path

from gradgroup.experiments.datasets import DataSet, inventory
from gradgroup.experiments.report._tables import aligned

HEAD = ("data set", "samples", "inputs", "outputs", "download", "here")


def listing(folder: Path | None) -> str:
    """All data sets, then how to get those that are not here."""
    known = inventory(folder)
    table = aligned(HEAD, [row(data) for data in known], {1, 2, 3, 4})
    missing = [advice(data) for data in known if data.found is None and data.addresses]
    return "\n\n".join([table, *missing])


def row(data: DataSet) -> tuple[str, ...]:
    place = str(data.found or "no") if data.addresses else "with scikit-learn"
    numbers = (f"{data.samples:,}", f"{data.inputs:,}", str(data.outputs))
    return (data.name, *numbers, f"{data.size / 1e6:,.0f} MB" if data.size else "none", place)


def advice(data: DataSet) -> str:
    return "\n".join([f"{data.name}: {data.advice}", *(f"    {where}" for where in data.addresses)])
