"""The paper's evaluation, as commands: ``python -m gradgroup.experiments.digits``."""

# Looked for, not imported: together they take seconds, and --help needs none of them.
from importlib.util import find_spec as _find_spec

for _package in ("matplotlib", "sklearn", "torch", "tqdm"):
    if _find_spec(_package) is None:
        raise ImportError(
            f"gradgroup.experiments needs {_package}, which is not installed: "
            "pip install 'gradgroup[experiments]'."
        )

__all__: list[str] = []
