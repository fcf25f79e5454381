"""The rule of ``AutoGrouping``: the paper's solve for a group that is spread in time.

The idea. Take the points of one trajectory for the members of the group, and let them all have
the same step. Then Ψ is a parabola in the one unknown η, whose minimiser is

    η = −⟨Θ̃, G̃⟩ / ‖G̃‖²,     Θ̃, G̃: members and gradients without their means,

the Barzilai–Borwein step. On mini-batches the inner product drowns in noise, but two things can
still be read: how far the points have spread, and how far the gradients have. By Cauchy–Schwarz
they bound the step,

    |η| ≤ ‖Θ̃‖ / ‖G̃‖,

and of the inner product itself its sign is enough, once it is summed over the run: it says whether
the gradients still approve of how far the points have gone. So the bound is the step, and the
sign decides whether the spread may grow.

In detail. Three points: the *scout* z takes the steps; the *average* x of where the scout has
been, with weights w = 1, 2, 3, …, is what is served; gradients are taken at the *stand*
p = x + (1−β)(z − x), close to the average. With gₜ the gradient at pₜ on batch t,

    noise   v ← mean of ½(gₜ − gₜ₋₁)², weights w²     ‖G̃‖², coordinate by coordinate
    reach   R ← max ‖x − z₀‖ in the metric √v          ‖Θ̃‖, as a root mean square
            … where the verdict Σ w³ gₜ·(z₀ − x) > 0       the sign of ⟨Θ̃, G̃⟩
    scout   z ← z − η gₜ/√v,   η = √2 · R · w/√Σw²         the bound
    average x ← x + (w/Σw)(z − x)

Two gradients on different batches differ by their noise and by the way between their points: v
holds both, so that steps are short where gradients are noisy or the curvature is high.

The start. Before there is a distance there is a first gradient and a loss: the stand goes along it
as far as the tangent would need to lower the loss by half. The gradient there, on the next batch,
tells where on this line the slope vanishes (the two members' lines meet there), and the
trajectory begins at that point.

Conventions. Pure functions. Arrays are flat or of any shape alike; scalars are Python floats, of
float64. ``unit`` is a power of two that brings gradients near 1, so that their squares neither
overflow nor vanish in float32; ``noise`` and ``last`` are in that unit. The step is positive.
"""

from __future__ import annotations

import math
from enum import Enum, IntEnum
from typing import NamedTuple

from gradgroup.core._namespace import namespace
from gradgroup.core._solve import Array

# β: where on the line from scout to average gradients are taken. 0.8 to 0.95 are as good.
BETA = 0.9
# The factor of the bound, as in AdaGrad's D∞/√2 for a set of diameter D∞ ≤ 2R.
FACTOR = math.sqrt(2.0)
# No less than this part of the mean of √v: coordinates without a gradient so far, or with one
# that has underflowed.
FLOOR = 1e-8
TINY = 1e-30
# The first try lowers the tangent by this part of the loss.
FIRST_PART = 0.5
# Where the loss is zero or not known, how long the first try is, in numbers of the parameters.
FIRST_LENGTH = 1e-3
# How much farther than a try a secant is trusted; how much the next try is longer or shorter.
TRUSTED = 4.0
LEAP = 32.0
MOST_TRIES = 20
# The distance from the start is looked at in every step at first, later in every fourth: it
# changes slowly, and the start need not be read in the others.
LOOK_AT_FIRST = 64
LOOK_EVERY = 4


class Phase(IntEnum):
    LOOK = 0
    """No gradient yet."""
    TRY = 1
    """The stand is on a line along the first gradient."""
    GO = 2
    """The trajectory has begun."""


class Why(Enum):
    """Why a step is as long as it is."""

    LOOKING = "There has been no gradient yet."
    TRYING = "The length of the first step is still being looked for."
    FARTHER = "The model has come farther, and the gradients approve: steps are longer for it."
    NO_FARTHER = "The model has come no farther: steps shorten as noise is averaged out."
    DISAPPROVED = (
        "The gradients do not approve of how far the model has come: steps shorten as noise is "
        "averaged out."
    )
    CAPPED = "The gradient is large for its noise: no step is longer than the model has come."


class Pace(NamedTuple):
    """What the rule remembers beside its arrays."""

    phase: Phase = Phase.LOOK
    seen: int = 0
    """w of the last step: how many gradients the trajectory has seen."""
    reach: float = 0.0
    """R, how far the average has been from the start."""
    verdict: float = 0.0
    """Weighted mean of ``g·(z₀ − x)``: positive while the gradients approve of the way."""
    trace: float = 0.0
    """``Σ √v`` over all coordinates."""
    push: float = 0.0
    """``Σ g²/√v`` of the last gradient."""
    slope: float = 0.0
    """How fast the loss fell at the start, along the whole of the present try."""
    tries: int = 0
    unit: float = 1.0
    step: float = 0.0
    """η of the last step."""
    grown: bool = False
    """Whether the reach grew when it was last looked at."""
    capped: bool = False
    """Whether the last step was held to the length of the way."""

    @property
    def why(self) -> Why:
        if self.phase is not Phase.GO:
            return Why.LOOKING if self.phase is Phase.LOOK else Why.TRYING
        if self.capped:
            return Why.CAPPED
        if self.verdict <= 0.0:
            return Why.DISAPPROVED
        return Why.FARTHER if self.grown else Why.NO_FARTHER


class Track(NamedTuple):
    """The arrays of the rule, all of one shape."""

    average: Array
    stand: Array
    noise: Array
    start: Array
    last: Array
    """The gradient before, in its unit."""


class Order(NamedTuple):
    """What one sweep does; the same for all coordinates."""

    step: float
    mix: float
    """w²/Σw², the share of the new square in the noise."""
    share: float
    """w/Σw, the share of the scout in the average."""
    floor: float
    shrink: float
    """What the scout is multiplied with: weight decay, as a proximal step, which no size of λ or
    of the step makes unstable."""
    unit: float
    capped: bool
    look: bool
    """Whether the sums that have to do with the start are asked for."""


class Sums(NamedTuple):
    """What a sweep has seen, added up over all coordinates."""

    trace: float
    push: float
    verdict: float
    reach: float
    """``Σ √v (x − z₀)²``."""


def sweep(track: Track, grad: Array, order: Order) -> tuple[Track, Sums]:
    """One step of the trajectory, from the gradient at the stand."""
    xp = namespace(grad)
    average, stand, noise, start, last = track
    grad = grad * order.unit
    noise = noise + order.mix * (0.5 * (grad - last) ** 2 - noise)
    root = xp.sqrt(noise) + order.floor
    scout = average + (stand - average) / (1.0 - BETA)
    verdict = xp.sum(grad * (start - average), dtype=xp.float64)
    scout = order.shrink * (scout - order.step * grad / root)
    average = average + order.share * (scout - average)
    stand = average + (1.0 - BETA) * (scout - average)
    away = average - start
    sums = Sums(
        trace=xp.sum(root, dtype=xp.float64),
        push=xp.sum(grad * grad / root, dtype=xp.float64),
        verdict=verdict,
        reach=xp.sum(root * away * away, dtype=xp.float64),
    )
    return Track(average, stand, noise, start, grad), sums


def order(pace: Pace, size: int, scale: float = 1.0) -> Order:
    """What the next sweep is to do, over ``size`` coordinates in all, without weight decay.

    ``scale`` is what the gradients are to be multiplied with to be those of the loss.
    """
    w = pace.seen + 1
    squares = w * (w + 1) * (2 * w + 1) / 6.0
    step = FACTOR * pace.reach * w / math.sqrt(squares)
    # However quiet the gradients: no step is longer than the average has ever been away.
    longest = pace.reach * math.sqrt(pace.trace / max(pace.push, TINY))
    return Order(
        step=min(step, longest),
        mix=w * w / squares,
        share=2.0 / (w + 1),
        floor=max(FLOOR * pace.trace / size, TINY),
        shrink=1.0,
        unit=pace.unit * scale,
        capped=longest < step,
        look=w <= LOOK_AT_FIRST or w % LOOK_EVERY == 0,
    )


def decayed(told: Order, weight_decay: float) -> Order:
    """The same with decoupled weight decay: every step takes ``step · weight_decay`` off."""
    return told._replace(shrink=1.0 / (1.0 + told.step * weight_decay)) if weight_decay else told


def learn(pace: Pace, sums: Sums, told: Order) -> Pace:
    """What a step has shown."""
    moved = pace._replace(
        seen=pace.seen + 1,
        trace=sums.trace,
        push=sums.push,
        step=told.step,
        capped=told.capped,
    )
    return _looked(moved, sums) if told.look else moved


def _looked(pace: Pace, sums: Sums) -> Pace:
    """With weights w³, it is the last third of the run that decides whether the reach may grow."""
    w, every = pace.seen, 1 if pace.seen <= LOOK_AT_FIRST else LOOK_EVERY
    verdict = pace.verdict + every * 4.0 * w / (w + 1) ** 2 * (sums.verdict - pace.verdict)
    reached = math.sqrt(max(sums.reach, 0.0) / max(sums.trace, TINY))
    reach = max(pace.reach, reached) if verdict > 0.0 else pace.reach
    return pace._replace(verdict=verdict, reach=reach, grown=reach > pace.reach)


# The start.


def unit_of(squares: float, size: int) -> float:
    """The power of two that brings gradients with this sum of squares near 1."""
    return 2.0 ** -round(math.log2(max(squares, TINY**2) / size) / 2.0)


def first_direction(grad: Array, level: float) -> tuple[Array, Sums]:
    """The direction of the first try, and its sums for a length of one.

    One gradient says little of each coordinate's noise: half of the metric is their mean square
    ``level``.
    """
    xp = namespace(grad)
    root = xp.sqrt(0.5 * (grad * grad + level)) + TINY
    direction = grad / root
    push = xp.sum(grad * direction, dtype=xp.float64)
    return direction, Sums(xp.sum(root, dtype=xp.float64), push, 0.0, push)


def look(pace: Pace, sums: Sums, loss: float) -> tuple[Pace, float]:
    """How long the first try is, as a multiple of the first direction."""
    known = math.isfinite(loss) and loss != 0.0
    length = FIRST_PART * abs(loss) * pace.unit / sums.push if known else FIRST_LENGTH
    reach = length * math.sqrt(sums.reach / sums.trace)
    found = pace._replace(phase=Phase.TRY, reach=reach, slope=length * sums.push)
    return found._replace(trace=sums.trace, push=sums.push), length


def judge(pace: Pace, slope: float) -> tuple[Pace, float]:
    """What to multiply the try with, given how fast the loss still falls at its end.

    The trajectory begins there if the phase has become ``GO``.
    """
    vanishes = pace.slope / max(pace.slope - slope, pace.slope / LEAP**2)
    if pace.tries < MOST_TRIES and not 1.0 / LEAP <= vanishes <= TRUSTED:
        return _tried(pace, LEAP if vanishes > LEAP else TRUSTED if vanishes > 1.0 else 1.0 / LEAP)
    factor = min(max(vanishes, 1.0 / LEAP), TRUSTED)
    return _tried(pace, factor)[0]._replace(phase=Phase.GO, seen=1), factor


def shorten(pace: Pace) -> tuple[Pace, float]:
    """After a try that ended in an overflow."""
    return _tried(pace, 1.0 / LEAP)


def _tried(pace: Pace, factor: float) -> tuple[Pace, float]:
    reach, slope = factor * pace.reach, factor * pace.slope
    return pace._replace(reach=reach, slope=slope, tries=pace.tries + 1), factor
