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

If the gradients differ at the centre, the members see mini-batches of their own. Then λ is
lost in noise, but how much the gradients differ because of the members' places, beyond the
mini-batches, can be told in random directions, each of which holds little of the noise. The
members are widened until that is a quarter of the gradient itself: angles of about 50 degrees.

Conventions. Pure functions on a small record of Python numbers. The caller puts the members
where ``along`` and ``across`` say: member i at ``centre + along·cᵢ·ḡ/‖ḡ‖ + across·uᵢ`` with
``Σcᵢ = 0``, mean ``cᵢ² = 1`` (:func:`positions`), and random ``uᵢ`` with ``Σuᵢ = 0`` and mean
``‖uᵢ‖² ≈ 1``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from gradgroup.core._guard import Evidence

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
# gradients, in units of the gradient's square; and how many standard deviations are no chance.
FIRST_NOISY = 0.05
WIDEN_NOISY = 2.0
APART = 0.25
BEYOND_CHANCE = 4.0
# Rounds a stage may take before noise or flatness is taken as the answer.
MOST_ROUNDS = 10


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
    """``Σ ‖gᵢ−ḡ‖²`` with all members at the centre: zero when they see the same samples."""
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


Shows: TypeAlias = Callable[[Opening, Evidence, Standing], bool]
After: TypeAlias = Callable[[Opening, Evidence, Standing], Opening]


def advance(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    """Where to put the members after a round of gradients, and what it has shown."""
    if opening.stage is Stage.LOOK:
        return _after_look(opening, evidence, now)
    shows, after, widen = _rules(opening)
    if shows(opening, evidence, now):
        return after(opening, evidence, now)
    if opening.rounds < MOST_ROUNDS:
        return _tried(_scaled(opening, widen))
    return _given_up(opening)


def retreat(opening: Opening) -> Opening:
    """Where to put the members after a round that overflowed: much closer together."""
    return _tried(_scaled(opening, 1.0 / LEAP))


def _rules(opening: Opening) -> tuple[Shows, After, float]:
    if opening.noise > 0.0:
        return _noisy_shows, _after_noisy, WIDEN_NOISY
    return _exact_shows, _after_along if opening.stage is Stage.ALONG else _after_across, WIDEN


def _after_look(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    # The mean of noisy gradients is longer than the gradient by a share of the noise.
    bias = evidence.apart / (now.members * (now.members - 1))
    slope = math.sqrt(max(evidence.slope - bias, 0.25 * evidence.slope))
    if slope == 0.0:
        return opening
    # |f|/‖g‖ is where the tangent reaches zero loss: right in both scales. Where the loss is
    # unknown or has a constant added, it is only a first guess, which widening puts right.
    loss = 0.0 if math.isnan(evidence.loss) else abs(evidence.loss)
    natural = max(loss / slope, now.size) or FIRST
    known = replace(opening, natural=natural, slope=slope, noise=evidence.apart)
    if known.noise > 0.0:
        return replace(known, stage=Stage.ACROSS, across=max(FIRST_NOISY * natural, now.size))
    return replace(known, stage=Stage.ALONG, along=max(FIRST * natural, now.size))


# Exact gradients: the differences are curvature, to be measured and then trusted.


def _exact_shows(opening: Opening, evidence: Evidence, now: Standing) -> bool:
    return evidence.along > 0.0 and evidence.agree


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


def _noisy_shows(opening: Opening, evidence: Evidence, now: Standing) -> bool:
    """Whether the members' places part the gradients far enough, and not by chance.

    In a random direction lies an even share of the mini-batches' noise.
    """
    chance = math.sqrt(now.psi * opening.noise / ((now.members - 1) * now.d))
    excess = evidence.apart - opening.noise
    return (
        evidence.along > BEYOND_CHANCE * chance and excess > APART * now.members * opening.slope**2
    )


def _after_noisy(opening: Opening, evidence: Evidence, now: Standing) -> Opening:
    return replace(opening, stage=Stage.DONE, curvature=evidence.curvature)


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
