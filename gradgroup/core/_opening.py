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

- ``LOOK``: all members at the centre. If their gradients differ, they see mini-batches of
  their own, and from here on a difference only counts when it exceeds that noise.
- ``ALONG``: members on a short line along ḡ, longer until the curvature λ shows.
- ``ACROSS``: members in random directions, wider until the curvature there shows.
- ``DONE``: members in random directions at the calibrated width, and also spread along ḡ, so
  that the steepest direction is never missing from their differences by bad luck.

Conventions. Pure functions on a small record of Python numbers. The caller puts the members
where ``along`` and ``across`` say: member i at ``centre + along·cᵢ·ḡ/‖ḡ‖ + across·uᵢ`` with
``Σcᵢ = 0``, mean ``cᵢ² = 1`` (:func:`positions`), and random ``uᵢ`` with ``Σuᵢ = 0`` and mean
``‖uᵢ‖² ≈ 1``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum

from gradgroup.core._guard import Evidence

# First lengths, as parts of the natural one: small enough for any conditioning where
# gradients are exact, larger where they must be seen through noise.
FIRST_EXACT = 1e-3
FIRST_NOISY = 0.05
WIDEN = 4.0
# How far the differences must exceed those of the mini-batches alone, in squares.
ABOVE_NOISE = 4.0
# The line along the gradient, as part of the step to the lowest point on it.
ALONG_PART = 0.5
# Rounds a stage may take before noise or flatness is taken as the answer.
MOST_ROUNDS = 8


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


def advance(opening: Opening, evidence: Evidence, members: int, psi: float, size: float) -> Opening:
    """Where to put the members after a round of gradients, and what it has shown.

    ``psi`` is Ψ of the members as they stood, ``size`` the smallest length that is safely
    above the rounding of the parameters.
    """
    if opening.stage is Stage.LOOK:
        return _after_look(opening, evidence, members, size)
    after = _after_along if opening.stage is Stage.ALONG else _after_across
    if _shows(opening, evidence):
        return after(opening, evidence, members, psi, size)
    if opening.rounds < MOST_ROUNDS:
        return _scaled(replace(opening, rounds=opening.rounds + 1), WIDEN)
    return _given_up(opening)


def retreat(opening: Opening) -> Opening:
    """Where to put the members after a round that overflowed: much closer together."""
    return _scaled(replace(opening, rounds=opening.rounds + 1), 1.0 / WIDEN**2)


def _after_look(opening: Opening, evidence: Evidence, members: int, size: float) -> Opening:
    # The mean of noisy gradients is longer than the gradient by a share of the noise.
    bias = evidence.apart / (members * (members - 1))
    slope = math.sqrt(max(evidence.slope - bias, 0.25 * evidence.slope))
    if slope == 0.0:
        return opening
    # |f|/‖g‖ is where the tangent reaches zero loss: right in both scales. Where the loss is
    # unknown or has a constant added, it is only a first guess, which widening puts right.
    loss = 0.0 if math.isnan(evidence.loss) else abs(evidence.loss)
    natural = max(loss / slope, size) or FIRST_EXACT
    known = replace(opening, natural=natural, slope=slope, noise=evidence.apart)
    return replace(known, stage=Stage.ALONG, along=max(_first(known) * natural, size))


def _after_along(
    opening: Opening, evidence: Evidence, members: int, psi: float, size: float
) -> Opening:
    natural = opening.slope * psi / evidence.along
    known = replace(opening, natural=natural, curvature=evidence.curvature, rounds=0)
    return replace(known, stage=Stage.ACROSS, along=0.0, across=max(_first(known) * natural, size))


def _after_across(
    opening: Opening, evidence: Evidence, members: int, psi: float, size: float
) -> Opening:
    # The line along ḡ raises the mean loss by a share ALONG_PART² of ½‖ḡ‖·natural, which is
    # what the best step would gain; the random directions bring the rest.
    wanted = (1.0 - ALONG_PART**2) * opening.slope * opening.natural
    across = opening.across * math.sqrt(wanted * members / evidence.along)
    return replace(opening, stage=Stage.DONE, along=ALONG_PART * opening.natural, across=across)


def _first(opening: Opening) -> float:
    return FIRST_NOISY if opening.noise > 0.0 else FIRST_EXACT


def _shows(opening: Opening, evidence: Evidence) -> bool:
    """Whether the differences of the gradients are curvature rather than noise."""
    if opening.noise > 0.0:
        return evidence.along > 0.0 and evidence.apart > ABOVE_NOISE * opening.noise
    return evidence.along > 0.0 and evidence.agree


def _scaled(opening: Opening, factor: float) -> Opening:
    return replace(opening, along=factor * opening.along, across=factor * opening.across)


def _given_up(opening: Opening) -> Opening:
    """No curvature to be seen: spread the members by the natural length and begin."""
    return replace(opening, stage=Stage.DONE, along=opening.natural, across=opening.natural)
