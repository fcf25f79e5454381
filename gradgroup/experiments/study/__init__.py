"""Studies: which runs they need, how all of them are done, where they are kept."""

from gradgroup.experiments.study._store import Key, Store
from gradgroup.experiments.study._sweep import sweep

__all__ = ["Key", "Store", "sweep"]
