"""The mathematics: arrays in, arrays out, for any library of the array API standard."""

from gradgroup.core._guard import Evidence, Guard, gather, guarded_steps
from gradgroup.core._opening import Opening, Stage, Standing, advance, retreat
from gradgroup.core._solve import (
    Grams,
    System,
    condition,
    free_steps,
    gram,
    grams,
    laplacian,
    normal_equations,
    positions,
    spread,
    spread_after,
    step_sizes,
    tied_step,
)

__all__ = [
    "Evidence",
    "Grams",
    "Guard",
    "Opening",
    "Stage",
    "Standing",
    "System",
    "advance",
    "condition",
    "free_steps",
    "gather",
    "gram",
    "grams",
    "guarded_steps",
    "laplacian",
    "normal_equations",
    "positions",
    "retreat",
    "spread",
    "spread_after",
    "step_sizes",
    "tied_step",
]
