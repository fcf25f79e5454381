"""The paper's evaluation: data sets, runs by the thousand, figures, a report with verdicts.

``gradgroup reproduce`` is the command, :func:`reproduce` the function behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

# Looked for, not imported: together they take seconds, and --help needs none of them.
from importlib.util import find_spec as _find_spec
from pathlib import Path

_NEEDED = ("joblib", "matplotlib", "numba", "pooch", "sklearn", "threadpoolctl", "torch", "tqdm")

for _package in _NEEDED:
    if _find_spec(_package) is None:
        raise ImportError(
            f"gradgroup.experiments needs {_package}, which is not installed: "
            "pip install 'gradgroup[experiments]'."
        )

__all__ = ["reproduce"]


def reproduce(
    level: str,
    data: Sequence[str],
    folder: Path | str,
    *,
    data_dir: Path | None = None,
    jobs: int | None = None,
) -> Path:
    """Run the paper's experiments that are not done yet, and write the report.

    Parameters
    ----------
    level : str
        ``"quick"``, ``"default"`` or ``"paper"``: how many epochs and seeds.
    data : sequence of str
        Names of data sets.
    folder : path
        Where runs, figures and the report are kept. The same call goes on with what is there.
    data_dir : path, optional
        Where data are looked for first, instead of in the folder that GRADGROUP_DATA names.
    jobs : int, optional
        Processes; as many as there are cores, or workers of joblib's backend, by default.

    Returns
    -------
    Path
        The report, a page of HTML.

    Examples
    --------
    On the workers of a Dask cluster::

        with joblib.parallel_config(backend="dask"):
            reproduce("paper", ["mnist"], "runs/mnist")
    """
    from gradgroup.experiments import _reproduce as work

    if level not in work.LEVELS:
        known = ", ".join(map(repr, work.LEVELS))
        raise ValueError(f"level must be one of {known}, but got {level!r}.")
    return work.reproduce(work.LEVELS[level], data, Path(folder), data_dir, jobs)[1]
