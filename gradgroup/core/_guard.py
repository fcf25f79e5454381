"""The safeguard: a group that cannot blow up, and that gets somewhere on any conditioning.

The idea. Left to itself the paper's solve diverges once the condition number passes about
a thousand: a member that takes a step of its own leaves the others, the differences of the
members then no longer show the steep directions, and the solve believes the function is
flat. Five rules, each with a constant or two, prevent this.

1. *One step for all* (:func:`~gradgroup.core.tied_step`). On a quadratic all members, and so
   their differences, are multiplied by the same polynomial in the Hessian: the differences
   go on representing every direction that matters.
2. *A ceiling.* Let L be the largest curvature the differences have shown. A step t lifts
   the loss to at most ``f − t‖g‖² + ½ L t² ‖g‖²``; t is kept so short that this stays below
   the level where the run began (slowly lowered). Steps much longer than 2/L are needed
   on ill-conditioned problems and remain possible once the loss has fallen.
3. *A short step, regularly.* Every tenth step is at most 1/L. It wipes out the steep
   directions that the long steps have stirred up, breaks the cycles a one-step rule falls
   into, and makes the whole about three times faster on ill-conditioned quadratics.
4. *Only a group that agrees is believed.* For a convex function seen by all members alike,
   ``fᵢ − f̄ ≤ gᵢ·(θᵢ − θ̄)`` must hold for each of them. When it fails they saw different
   mini-batches, the apparent curvature is noise, and L is not raised by it.

5. *A group that has come together is drawn apart.* Where the gradients are all but parallel,
   the members are so close to each other, for where they are, that they no longer show the
   direction they all move in. Then their steps are made unequal, half and one and a half of
   the common step for two members, which spreads them along just that direction.

Conventions. Plain Python numbers; ``step`` is signed, descent negative, like the paper's η.
Where the losses are not known they are NaN, and rule 2 falls back on the gradients' norms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gradgroup.core._solve import System, numbers, positions, sums

# Part of the ceiling's height above the present loss that is left after a step: it comes
# down over about a thousand steps. At 0.998 ill-conditioned runs already starve.
CEILING_DECAY = 0.999
# A step to the very ceiling mirrors the steepest direction and gains nothing.
SHORT_OF_CEILING = 0.9
SHORT_STEP_EVERY = 10
# How many steps a group that contradicted itself is not believed.
DISTRUST = 10
# Σ‖gᵢ−ḡ‖² as a part of Σ‖gᵢ‖² under which gradients count as parallel: angles of six degrees.
PARALLEL = 0.01
TILT = 0.5


class Evidence(NamedTuple):
    """What one round of gradients says, in the few numbers the safeguard looks at."""

    along: float
    """``Σ (gᵢ−ḡ)·(θᵢ−θ̄)``: how much the gradients differ along the members' differences."""
    apart: float
    """``Σ ‖gᵢ−ḡ‖²``: how much the gradients differ at all."""
    steep: float
    """Mean of ``‖gᵢ‖²`` over the members (of ``gᵢ·pᵢ`` for another direction ``pᵢ``)."""
    slope: float
    """``‖ḡ‖²``."""
    loss: float
    """Mean loss of the members; NaN when it is not known."""
    disagreement: float
    """``Σ ‖gᵢ−ḡ‖²`` as a part of ``Σ ‖gᵢ‖²``: zero for parallel gradients of one length."""
    agree: bool
    """Whether one convex function could have produced what the members saw."""

    @property
    def curvature(self) -> float:
        return self.apart / self.along


@dataclass(frozen=True)
class Guard:
    """What the safeguard remembers from step to step."""

    curvature: float = 0.0
    """The largest believable curvature seen, L."""
    loss_ceiling: float = math.nan
    """No step may risk a loss above this level."""
    slope_ceiling: float = math.nan
    """The same for the mean of ‖g‖², used where losses are not known."""
    quiet: int = DISTRUST
    """Steps since the members last contradicted each other."""
    clock: int = 0
    """Rounds so far."""
    idle: int = 0
    """Rounds in a row whose differences showed no positive curvature."""


def gather(
    system: System, losses: Sequence[float] | None = None, steep: float | None = None
) -> Evidence:
    """Read the evidence off the normal equations of the gradients and the members' losses."""
    n = system.b.shape[0]
    along, apart, trace = sums(system)
    squares = trace / (n - 1)
    return Evidence(
        along=along / n,
        apart=apart / n,
        steep=squares / n if steep is None else steep,
        slope=max(squares + trace - apart, 0.0) / n**2,
        loss=math.nan if losses is None else sum(losses) / n,
        disagreement=apart / trace * (n - 1) / n if trace > 0.0 else 0.0,
        agree=along > 0.0 and _could_be_convex(numbers(system.b), losses),
    )


def _could_be_convex(b: list[float], losses: Sequence[float] | None) -> bool:
    """``fᵢ − f̄ ≤ gᵢ·(θᵢ − θ̄)`` for every member: convexity, averaged over the others.

    Without losses what remains is that gradients of a convex function are monotone.
    """
    if losses is None:
        return True
    n, mean = len(b), sum(losses) / len(b)
    return all(n * (loss - mean) <= rise for loss, rise in zip(losses, b, strict=True))


def guarded_steps(
    guard: Guard, evidence: Evidence, tied: float, members: int
) -> tuple[Guard, list[float]]:
    """The members' steps, and what to remember.

    ``tied`` is the minimiser of Ψ with α already in it (:func:`tied_step`). The steps are its
    own, the same for all members, but where a rule of this module shortens or tilts them. They
    are zero where the members' differences show no positive curvature, and so nothing at all;
    after ten such rounds in a row, a step of at most 1/L is tried.
    """
    guard = _learn(guard, evidence, tied)
    parallel = evidence.disagreement < PARALLEL
    step = _common_step(guard, evidence, tied, parallel)
    tilt = TILT if parallel or guard.idle else 0.0
    return guard, [step * (1.0 + tilt * c) for c in positions(members)]


def _common_step(guard: Guard, evidence: Evidence, tied: float, parallel: bool) -> float:
    if evidence.steep <= 0.0:
        return 0.0
    if guard.idle:
        return _blind_step(guard, parallel)
    longest = _longest(guard, evidence)
    if guard.clock % SHORT_STEP_EVERY == 0 and guard.quiet >= DISTRUST:
        longest = min(longest, 1.0 / guard.curvature)
    return max(tied, -longest)


def _blind_step(guard: Guard, parallel: bool) -> float:
    """The step where the differences show nothing: what was seen before still holds.

    It is for members at one point, and, now and then, for a group that would otherwise stand
    still for ever on a function that is not convex there. Where one such step after another
    shows nothing, they become shorter: equal ones could go to and fro about a kink for ever.
    """
    if guard.curvature and (parallel or guard.idle % DISTRUST == 0):
        return -1.0 / (guard.curvature * guard.idle)
    return 0.0


def _learn(guard: Guard, evidence: Evidence, tied: float) -> Guard:
    quiet = guard.quiet + 1 if evidence.agree else 0
    seeing = -math.inf < tied < 0.0
    curvature = guard.curvature
    if seeing and (quiet >= DISTRUST or curvature == 0.0):
        curvature = max(curvature, evidence.curvature)
    return Guard(
        curvature=curvature,
        loss_ceiling=_lowered(guard.loss_ceiling, evidence.loss),
        slope_ceiling=_lowered(guard.slope_ceiling, evidence.steep),
        quiet=quiet,
        clock=guard.clock + 1,
        idle=0 if seeing else guard.idle + 1,
    )


def _lowered(ceiling: float, level: float) -> float:
    """Sink towards the present level, never rise; begin at the first level that is known."""
    if math.isnan(ceiling) or math.isnan(level):
        return level if math.isnan(ceiling) else ceiling
    return min(ceiling, level + CEILING_DECAY * max(ceiling - level, 0.0))


def _longest(guard: Guard, evidence: Evidence) -> float:
    """The longest t with ``f − t‖g‖² + ½ L t²‖g‖²`` below the ceiling (at least 2/L)."""
    if guard.curvature == 0.0:
        return math.inf
    if math.isnan(evidence.loss):
        room = guard.slope_ceiling / evidence.steep
    else:
        gap = max(guard.loss_ceiling - evidence.loss, 0.0)
        room = 1.0 + 2.0 * guard.curvature * gap / evidence.steep
    return SHORT_OF_CEILING * (1.0 + math.sqrt(max(room, 1.0))) / guard.curvature
