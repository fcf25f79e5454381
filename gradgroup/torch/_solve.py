"""One solve of Lemma 1 over some buckets, from the first round to the last.

The idea. All parameters of a solve share their steps: their Gram matrices add up. A solve
first spreads its members (``gradgroup.core._opening``), then takes a step a round, with the
safeguard's one step for all or with Lemma 1's for each. What it remembers between rounds is a
handful of numbers, which :meth:`Solve.record` turns into plain Python for a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradgroup import core
from gradgroup.core._directions import Direction
from gradgroup.core._solve import Eps, numbers
from gradgroup.torch._members import Bucket


class Diagnostics(NamedTuple):
    """What the last step did, for a logger."""

    steps: tuple[float, ...]
    """η, the signed step of each member; zeros while the members are being spread."""
    spread: float
    """Ψ of the members as they stand now."""
    condition: float
    """Condition number of the N×N system of Lemma 1 at the last round."""
    calibrating: bool
    """Whether the members are still being spread and no step has been taken."""
    refused: int
    """Rounds so far that had NaN or Inf in a loss or gradient and moved nothing."""
    guarded: int
    """Steps so far that the safeguard made shorter than the solve asked for."""


class Settings(NamedTuple):
    """What the user asked for, the same for all solves of an optimizer."""

    members: int
    rule: Direction | None
    spread: float | str
    safeguard: bool
    publish: str
    per_group: bool
    seed: int


@dataclass
class Solve:
    """The buckets that share one system of equations, and the memory of their run."""

    settings: Settings
    buckets: list[Bucket]
    decays: list[float]
    """Weight decay of each bucket."""
    alpha: float
    eps: Eps
    opening: core.Opening = field(default_factory=core.Opening)
    guard: core.Guard = field(default_factory=core.Guard)
    steps: list[float] = field(default_factory=list)
    served: int | None = None
    """The member that is the published point; None for the mean of all."""
    refused: int = 0
    guarded: int = 0
    system: core.System = field(init=False)
    """The normal equations of the last round's gradients."""
    finite: bool = True
    """Whether there is no NaN or Inf in them."""

    def __post_init__(self) -> None:
        n = self.settings.members
        self.system = core.System(np.eye(n), np.zeros(n))
        self.steps = self.steps or [0.0] * n
        if self.settings.spread != "auto":
            self.opening = replace(self.opening, stage=core.Stage.DONE)

    def form(self) -> None:
        """The normal equations, from the gradients in the buckets."""
        self.system = self._system(bucket.grams() for bucket in self.buckets)
        self.finite = _is_finite(self.system)

    def decay(self, scale: float = 1.0) -> None:
        """Add the gradient of the penalty ``λ/2 ‖θ‖²``, times ``scale``."""
        for bucket, weight in self._decayed():
            bucket.decay(scale * weight)

    def _decayed(self) -> list[tuple[Bucket, float]]:
        return [pair for pair in zip(self.buckets, self.decays, strict=True) if pair[1]]

    @staticmethod
    def _system(found: Iterable[core.Grams]) -> core.System:
        gg, gt = (sum(parts) for parts in zip(*found, strict=True))
        return core.normal_equations(core.Grams(gg, gt))

    def _evidence(self, losses: list[float] | None) -> core.Evidence:
        evidence = core.gather(self.system, losses)
        if self.settings.per_group:
            # The losses tell of the other groups' parameters too: only the gradients are ours.
            evidence = evidence._replace(agree=evidence.along > 0.0)
        return evidence

    def refuse(self) -> None:
        """Count a round that moves nothing; one that opened too wide is tried closer."""
        self.refused += 1
        self.steps = [0.0] * self.settings.members
        if self.opening.stage in (core.Stage.ALONG, core.Stage.ACROSS):
            closer = core.retreat(self.opening)
            factor = (closer.along + closer.across) / (self.opening.along + self.opening.across)
            for bucket in self.buckets:
                bucket.contract(factor)
            self.opening = closer

    def advance(self, losses: list[float] | None) -> bool:
        """Spread the members, or move them one step; False when the step was refused."""
        if losses is not None:
            for bucket, weight in self._decayed():
                penalty = bucket.penalty(weight).tolist()
                losses = [loss + more for loss, more in zip(losses, penalty, strict=True)]
        evidence = self._evidence(losses)
        if self.opening.done:
            return self._move(evidence, losses)
        self._open(evidence)
        return True

    # Spreading the members.

    def _open(self, evidence: core.Evidence) -> None:
        d = sum(bucket.size for bucket in self.buckets)
        now = core.Standing(self.settings.members, d, self.spread(), self._size())
        self.opening = core.advance(self.opening, evidence, now)
        if self.opening.done and self.settings.rule is None:
            self.guard = core.Guard(curvature=self.opening.curvature)
        if self.opening.stage is not core.Stage.LOOK:
            self._place(math.sqrt(evidence.slope))

    def _place(self, slope: float) -> None:
        n = self.settings.members
        # Gradients that cancel have no common direction to spread along.
        length = self.opening.along / slope if slope else 0.0
        line = torch.tensor(core.positions(n), dtype=torch.float64) * length
        size = sum(bucket.size for bucket in self.buckets)
        each = self.opening.across / math.sqrt(size * (n - 1) / n)
        for number, bucket in enumerate(self.buckets):
            bucket.place(line, each, self.settings.seed + number)

    def scatter(self) -> None:
        """Spread new members by the number the user gave."""
        if self.settings.spread == "auto":
            return
        n = self.settings.members
        each = float(self.settings.spread) * math.sqrt(n / (n - 1))
        for number, bucket in enumerate(self.buckets):
            bucket.place(None, each, self.settings.seed + number)

    def spread(self) -> float:
        return sum(core.spread(bucket.thetas) for bucket in self.buckets)

    def _size(self) -> float:
        """A length safely above the rounding of the parameters."""
        squares = (
            torch.finfo(bucket.rows.dtype).eps * float(bucket.centre().double().square().sum())
            for bucket in self.buckets
        )
        return math.sqrt(sum(squares))

    # Moving them.

    def _move(self, evidence: core.Evidence, losses: list[float] | None) -> bool:
        along, system = self._directions()
        if along:
            # Along p = B g the descent lemma holds in the metric of B: g·p stands for ‖g‖².
            products = (
                (b.grads * p).sum().item() for b, p in zip(self.buckets, along, strict=True)
            )
            steep = sum(products) / self.settings.members
            of_along = core.gather(system, steep=steep)
            evidence = of_along._replace(loss=evidence.loss, agree=evidence.agree)
        steps = self._steps(system, evidence) if _is_finite(system) else None
        if steps is None or not self._representable(steps, system):
            self.refuse()
            return False
        self._go(steps, self._served(losses), along or [None] * len(self.buckets))
        return True

    def _directions(self) -> tuple[list[Tensor], core.System]:
        """What members move along if not their gradients, and the system that solves for it."""
        if self.settings.rule is None:
            return [], self.system
        along = [bucket.directions(self.settings.rule) for bucket in self.buckets]
        pairs = zip(self.buckets, along, strict=True)
        return along, self._system(bucket.grams(directions) for bucket, directions in pairs)

    def _representable(self, steps: list[float], system: core.System) -> bool:
        """Whether the steps, and the distances they go, are numbers in the members' precision."""
        largest = min(torch.finfo(bucket.rows.dtype).max for bucket in self.buckets)
        squares = (row[i] for i, row in enumerate(numbers(system.a)))
        return all(
            abs(step) * max(math.sqrt(square), 1.0) < 1e-3 * largest
            for step, square in zip(steps, squares, strict=True)
        )

    def _go(self, steps: list[float], served: int | None, along: Sequence[Tensor | None]) -> None:
        self.steps, self.served = steps, served
        for bucket, directions in zip(self.buckets, along, strict=True):
            bucket.move(steps, served, directions)

    def _steps(self, system: core.System, evidence: core.Evidence) -> list[float]:
        if not self.settings.safeguard:
            return [float(step) for step in core.free_steps(system, self.alpha, self.eps)]
        tied = core.tied_step(system, self.alpha, self.eps)
        n = self.settings.members
        self.guard, steps = core.guarded_steps(self.guard, evidence, tied, n)
        self.guarded += steps != [tied] * n
        return steps

    def _served(self, losses: list[float] | None) -> int | None:
        if self.settings.publish == "mean":
            return None
        if losses is None:
            raise RuntimeError(
                'publish="best" must know the losses: set member.loss in the loop over members(), '
                "or use step(closure)."
            )
        return losses.index(min(losses))

    # Telling, saving and restoring.

    def diagnostics(self) -> Diagnostics:
        return Diagnostics(
            steps=tuple(self.steps),
            spread=self.spread(),
            condition=core.condition(self.system, self.eps),
            calibrating=not self.opening.done,
            refused=self.refused,
            guarded=self.guarded,
        )

    def record(self) -> dict[str, Any]:
        """The memory of the run, in plain numbers and lists."""
        return {
            "opening": asdict(self.opening) | {"stage": int(self.opening.stage)},
            "guard": asdict(self.guard),
            "steps": self.steps,
            "served": self.served,
            "refused": self.refused,
            "guarded": self.guarded,
            "seed": self.settings.seed,
            "numbers": [bucket.numbers for bucket in self.buckets],
        }

    def restore(self, record: dict[str, Any]) -> None:
        """Go on from what :meth:`record` returned."""
        opening = record["opening"]
        self.opening = core.Opening(**opening | {"stage": core.Stage(opening["stage"])})
        self.guard = core.Guard(**record["guard"])
        self.settings = self.settings._replace(seed=record["seed"])
        for name in ("steps", "served", "refused", "guarded"):
            setattr(self, name, record[name])
        for bucket, saved in zip(self.buckets, record["numbers"], strict=True):
            bucket.numbers = dict(saved)


def _is_finite(system: core.System) -> bool:
    # NaN and Inf survive every addition; so would an overflow, which is no better.
    return math.isfinite(sum(map(sum, numbers(system.a))) + sum(numbers(system.b)))
