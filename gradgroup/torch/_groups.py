"""Parameter groups, and the sentences for settings that cannot be."""

from __future__ import annotations

import math
from typing import Any

from gradgroup.core._solve import check_alpha, check_eps


class Group(dict[str, Any]):
    """A parameter group that tells a learning-rate scheduler why there is no learning rate."""

    def __missing__(self, key: str) -> Any:
        if key in ("lr", "initial_lr"):
            raise KeyError(
                "This optimizer has no learning rate, so a learning-rate scheduler has nothing "
                "to schedule: remove the scheduler."
            )
        raise KeyError(key)


def check_spread(spread: float | str) -> None:
    if spread != "auto" and not (isinstance(spread, float | int) and 0.0 < spread < math.inf):
        raise ValueError(
            f'spread must be "auto" or a number above 0, but got spread={spread!r}: members at '
            "the same point have the same gradient line, which meets itself everywhere."
        )


def check_keys(group: dict[str, Any], defaults: dict[str, Any]) -> None:
    known = {"params", "param_names", *defaults}
    for key in group:
        if key not in known:
            raise ValueError(
                f"A parameter group has the unknown setting {key!r}; known are "
                f"{', '.join(sorted(defaults))}."
            )


def check_solve(group: dict[str, Any], first: dict[str, Any], per_group: bool) -> None:
    check_alpha(group["alpha"])
    check_eps(group["eps"])
    for key in ("alpha", "eps"):
        if group[key] != first[key] and not per_group:
            raise ValueError(
                f"{key} is {group[key]!r} in one parameter group and {first[key]!r} in another, "
                "but all parameters share one solve: pass per_group=True to solve for each group."
            )


def check_group(group: dict[str, Any]) -> None:
    if not 0.0 <= group["weight_decay"] < math.inf:
        raise ValueError(
            f"weight_decay must be at least 0, but got weight_decay={group['weight_decay']!r}."
        )
    for p in group["params"]:
        if not p.is_floating_point():
            raise TypeError(
                f"Parameters must be real floating-point tensors, but one is of {p.dtype}: view a "
                "complex parameter as real with torch.view_as_real."
            )
