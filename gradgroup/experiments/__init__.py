"""The paper's evaluation: data sets, runs by the thousand, figures, a report with verdicts."""

# Looked for, not imported: together they take seconds, and --help needs none of them.
from importlib.util import find_spec as _find_spec

for _package in (
    "joblib",
    "matplotlib",
    "numba",
    "pooch",
    "sklearn",
    "threadpoolctl",
    "torch",
    "tqdm",
):
    if _find_spec(_package) is None:
        raise ImportError(
            f"gradgroup.experiments needs {_package}, which is not installed: "
            "pip install 'gradgroup[experiments]'."
        )

__all__: list[str] = []
