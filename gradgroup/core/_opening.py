"""How far apart the members start: a calibration that needs no scale from the user.

The idea. Ψ only falls, so the spread of the members at the start is the distance budget of
the whole run: the method's hidden learning rate. The paper says "random" and no more. Here
the members are spread so that their mean loss stands about as far above the centre's as the
best step along the gradient there would take it below:

    ½ Σ (gᵢ−ḡ)·(θᵢ−θ̄) / N  =  ½ ‖ḡ‖² / λ,     λ = curvature along ḡ.

Both sides are in units of the loss, so neither the scale of the parameters, nor the scale of
the loss, nor a constant added to it, matters; and the mean loss of the members can at most
about double its distance to the minimum.

It takes a few rounds of gradients, in which the centre stays where it is:

- ``LOOK``: all members at the centre. If their gradients are the same, gradients are exact.
- ``ALONG``: members on a short line along ḡ, longer until the curvature λ shows.
- ``ACROSS``: members in random directions, wider until the curvature there shows.
- ``DONE``: members in random directions at the calibrated width, and also spread along ḡ, so
  that the steepest direction is never missing from their differences by bad luck.

If the gradients differ at the centre, the members see mini-batches of their own. Then λ is lost
in noise, and so is any one round. But the noise is there before the members' places matter, and
can be averaged over those rounds. The members are widened until their gradients differ clearly
more than that, twice in a row; the excess, which grows with the square of the width, then tells
the width at which it is as large as the gradient itself,

    Σ ‖gᵢ−ḡ‖²  =  noise + N ‖ḡ‖²:

two members' gradients are at right angles there, but for the noise.

Conventions. Pure functions on a small record of Python numbers. The caller puts the members
where ``along`` and ``across`` say: member i at ``centre + along·cᵢ·ḡ/‖ḡ‖ + across·uᵢ`` with
``Σcᵢ = 0``, mean ``cᵢ² = 1`` (:func:`positions`), and random ``uᵢ`` with ``Σuᵢ = 0`` and mean
``‖uᵢ‖² ≈ 1``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from gradgroup.core._guard import Evidence

# The part of Σ‖gᵢ‖² that gradients at one point may differ by and still count as exact: between
# what rounding leaves and what the largest mini-batches do.
EXACT = 1e-10
# Exact gradients. The first length, as a part of the natural one: small enough for any
# conditioning. Growth while no curvature shows; growth at most to a length computed from
# curvature that shows; how far from a length that was tried a computed one is taken untried.
FIRST = 1e-3
WIDEN = 4.0
LEAP = 32.0
FAR = 8.0
# The line along the gradient, as part of the step to the lowest point on it.
ALONG_PART = 0.5
# Noisy gradients: the first length and the growth; how far the members' places are to part the
# gradients, in units of the gradient's square; how far above the noise that must be, in standard
# deviations (which are never taken for less than a part of the noise); and how many rounds must
# have been noise alone before anything can stand out from it.
FIRST_NOISY = 0.05
WIDEN_NOISY = 2.0
APART = 1.0
CLEARLY = 2.0
LEAST_DEVIATION = 0.25
QUIET_ROUNDS = 3
# Rounds a stage may take before noise or flatness is taken as the answer.
MOST_ROUNDS = 10
MOST_ROUNDS_NOISY = 16


class Stage(IntEnum):
    LOOK = 0
    ALONG = 1
    ACROSS = 2
    DONE = 3


@dataclass(frozen=True)
class Opening:
    """What the calibration has found, and where it wants the members next."""

    stage: Stage = Stage.LOOK
    along: float = 0.0
    """Length along ḡ at which the members are to stand."""
    across: float = 0.0
    """Length in random directions at which they are to stand."""
    natural: float = 0.0
    """The length of a sensible step, as far as it is known."""
    slope: float = 0.0
    """``‖ḡ‖`` at the centre."""
    noise: float = 0.0
    """``Σ ‖gᵢ−ḡ‖²`` without the members' places: zero when they see the same samples."""
    scatter: float = 0.0
    """Sum of squared deviations of that from its mean ``noise``, over the quiet rounds."""
    cross: float = 0.0
    """Mean of ``gᵢ·gⱼ`` over the quiet rounds: an estimate of ``‖ḡ‖²`` without the noise."""
    quiet: int = 0
    """Rounds in which nothing but noise was seen."""
    shown: int = 0
    """Rounds in a row in which more than noise was seen."""
    curvature: float = 0.0
    """``‖Aḡ‖²/ḡᵀAḡ``, the curvature the safeguard starts from."""
    rounds: int = 0
    """Rounds spent in this stage."""

    @property
    def done(self) -> bool:
        return self.stage is Stage.DONE


class Standing(NamedTuple):
    """The members of a round: how many, how large, how far apart."""

    members: int
    d: int
    psi: float
    """Ψ of the members."""
    size: float
    """The smallest length that is safely above the rounding of the parameters."""


def advance(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    """Where to put the members after a round of gradients, and what it has shown."""
    if opening.stage is Stage.LOOK:
        return _after_look(opening, evidence, now)
    if opening.noise > 0.0:
        return _after_noisy(opening, evidence, now)
    if evidence.along > 0.0 and evidence.agree:
        after = _after_along if opening.stage is Stage.ALONG else _after_across
        return after(opening, evidence, now)
    return _wider(opening, WIDEN, MOST_ROUNDS)


def retreat(opening: Opening) -> Opening:
    """Where to put the members after a round that overflowed: much closer together."""
    return _tried(_scaled(opening, 1.0 / LEAP))


def _after_look(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    # The mean of noisy gradients is longer than the gradient by a share of the noise.
    bias = _share(evidence.apart, now)
    slope = math.sqrt(max(evidence.slope - bias, 0.25 * evidence.slope))
    if slope == 0.0:
        return opening
    # |f|/‖g‖ is where the tangent reaches zero loss: right in both scales. Where the loss is
    # unknown or has a constant added, it is only a first guess, which widening puts right.
    loss = 0.0 if math.isnan(evidence.loss) else abs(evidence.loss)
    natural = max(loss / slope, now.size) or FIRST
    known = replace(opening, natural=natural, slope=slope)
    if evidence.disagreement > EXACT:
        first = max(FIRST_NOISY * natural, now.size)
        return _heard(replace(known, stage=Stage.ACROSS, across=first), evidence, now)
    return replace(known, stage=Stage.ALONG, along=max(FIRST * natural, now.size))


# Exact gradients: the differences are curvature, to be measured and then trusted.


def _after_along(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    natural = opening.slope * now.psi / evidence.along
    known = replace(opening, natural=natural, curvature=evidence.curvature)
    if natural > FAR * opening.along and opening.rounds < MOST_ROUNDS:
        return _tried(replace(known, along=min(ALONG_PART * natural, LEAP * opening.along)))
    first = max(FIRST * natural, now.size)
    return replace(known, stage=Stage.ACROSS, along=0.0, across=first, rounds=0)


def _after_across(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    # The line along ḡ raises the mean loss by a share ALONG_PART² of ½‖ḡ‖·natural, which is
    # what the best step would gain; the random directions bring the rest.
    wanted = (1.0 - ALONG_PART**2) * opening.slope * opening.natural
    across = opening.across * math.sqrt(wanted * now.members / evidence.along)
    if across > FAR * opening.across and opening.rounds < MOST_ROUNDS:
        return _tried(replace(opening, across=min(across, LEAP * opening.across)))
    return replace(opening, stage=Stage.DONE, along=ALONG_PART * opening.natural, across=across)


# Noisy gradients: members that see mini-batches of their own.


def _after_noisy(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    excess, wanted = evidence.apart - opening.noise, _wanted(opening, now)
    if not (evidence.along > 0.0 and excess > max(wanted, CLEARLY * _deviation(opening))):
        return _wider(_heard(opening, evidence, now), WIDEN_NOISY, MOST_ROUNDS_NOISY)
    if opening.quiet < QUIET_ROUNDS:
        # It stood out from the start: the guess of the scale was far too long.
        return _tried(_scaled(opening, 1.0 / LEAP))
    if not opening.shown:
        # Heavy tails make one such round by chance, hardly two at different widths.
        return _wider(replace(opening, shown=1), WIDEN_NOISY, MOST_ROUNDS_NOISY)
    across = opening.across * math.sqrt(wanted / excess)
    return replace(opening, stage=Stage.DONE, across=across, curvature=evidence.curvature)


def _heard(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    """Take the round for noise alone, and know the noise better (Welford's running moments)."""
    quiet = opening.quiet + 1
    change = evidence.apart - opening.noise
    noise = opening.noise + change / quiet
    product = evidence.slope - _share(evidence.apart, now)
    return replace(
        opening,
        noise=noise,
        scatter=opening.scatter + change * (evidence.apart - noise),
        cross=opening.cross + (product - opening.cross) / quiet,
        quiet=quiet,
        shown=0,
    )


def _share(apart: float, now: Standing) -> float:
    """What noise that parts the gradients by ``apart`` adds to the square of their mean."""
    return apart / (now.members * (now.members - 1))


def _wanted(opening: Opening, now: Standing) -> float:
    """How far the members' places are to part the gradients: a gradient's length.

    A gradient that cannot be told from none counts as long as what could have hidden it.
    """
    hidden = _share(opening.noise, now) / math.sqrt(opening.quiet)
    return APART * now.members * max(opening.cross, hidden)


def _deviation(opening: Opening) -> float:
    seen = math.sqrt(opening.scatter / max(opening.quiet - 1, 1))
    return max(seen, LEAST_DEVIATION * opening.noise)


def _wider(opening: Opening, factor: float, most: int) -> Opening:
    return _tried(_scaled(opening, factor)) if opening.rounds < most else _given_up(opening)


def _tried(opening: Opening) -> Opening:
    return replace(opening, rounds=opening.rounds + 1)


def _scaled(opening: Opening, factor: float) -> Opening:
    return replace(opening, along=factor * opening.along, across=factor * opening.across)


def _given_up(opening: Opening) -> Opening:
    """No curvature to be seen: spread the members, and let the steps be, of natural length."""
    return replace(
        opening,
        stage=Stage.DONE,
        along=opening.natural,
        across=opening.natural,
        curvature=opening.slope / opening.natural,
    )
