"""AutoGrouping's rule at its plainest, with switches to change or take away each ingredient."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gradgroup.core._auto import BETA, FACTOR, FIRST_PART, LEAP, TRUSTED


@dataclass(frozen=True)
class Rule:
    """The ingredients; what is not said is AutoGrouping's own, but that it looks at every step."""

    factor: float = FACTOR
    beta: float = BETA
    power: float = 1.0
    """Weights of the average and of the noise are wᵃ and w²ᵃ."""
    verdict_power: float = 3.0
    first_part: float = FIRST_PART
    metric: Literal["noise", "squares", "one"] = "noise"
    """√v from differences of gradients, from gradients, or the same for all coordinates."""
    exponent: float = 0.5
    """Of v in the metric."""
    reach: Literal["approved", "always", "shrinking"] = "approved"
    """When the reach may grow; "shrinking" also lets it shrink without approval."""
    cap: bool = True
    """Whether steps are held to the length of the way so far."""
    probe: Literal["none", "start", "steps"] = "none"
    """A second gradient of the same samples: of the first batch, at the end of the first try; or in
    every eighth step, farther along the scout's last move, whose Barzilai–Borwein step is taken."""
    spread: float = 0.0
    """Two members instead of one, at (1 ± spread)·(1 − β) of the way from average to scout."""


class Variant(torch.optim.Optimizer):
    """One parameter, trained by a rule."""

    def __init__(self, params: Iterable[Tensor], rule: Rule) -> None:
        super().__init__(params, {})
        (self.x,) = self.param_groups[0]["params"]
        self.rule, self.t = rule, 0
        self.start = self.x.detach().clone()
        self.scout, self.average = self.start.clone(), self.start.clone()
        self.noise, self.last = torch.zeros_like(self.start), torch.zeros_like(self.start)
        self.moved, self.along, self.length, self.taken = self.start, 0.0, 0.0, 0.0
        self.reach = self.trace = self.push = self.verdict = self.slope = 0.0
        self.squares = self.sum_of_squares = self.sum_of_weights = self.sum_of_verdicts = 0.0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> None:  # type: ignore[override]
        if self.t == 0:
            loss, grad = self.gradient(closure, self.start)
            self.look(float(loss), grad)
            if self.rule.probe == "start":
                _, grad = self.gradient(closure, self.scout)
                self.begin(float((grad * (self.start - self.scout)).sum()))
        else:
            self.go(closure)
        self.x.copy_(self.average)

    def gradient(self, closure: Callable[[], Any], *points: Tensor) -> tuple[Any, Tensor]:
        losses, total = [], torch.zeros_like(self.start)
        for point in points:
            self.x.copy_(point)
            losses.append(closure())
            total += self.x.grad
        return sum(losses) / len(points), total / len(points)

    def points(self) -> list[Tensor]:
        near, away = 1.0 - self.rule.beta, self.scout - self.average
        if not self.rule.spread:
            return [self.average + near * away]
        return [self.average + near * (1.0 + c * self.rule.spread) * away for c in (-1.0, 1.0)]

    def root(self, v: Tensor) -> Tensor:
        if self.rule.metric == "one":
            v = v.mean().expand_as(v)
        root = v**self.rule.exponent
        return root + 1e-8 * root.mean() + 1e-30

    def look(self, loss: float, grad: Tensor) -> None:
        self.t, self.last, self.noise = 1, grad, grad**2
        self.sum_of_squares = 1.0
        root = self.root(0.5 * (grad**2 + (grad**2).mean()))
        self.push = float((grad * grad / root).sum())
        length = self.rule.first_part * abs(loss) / self.push
        self.trace, self.slope = float(root.sum()), length * self.push
        self.reach = length * math.sqrt(self.push / self.trace)
        self.scout = self.start - length * grad / root

    def go(self, closure: Callable[[], Any]) -> None:
        if self.sum_of_weights == 0.0:
            _, grad = self.gradient(closure, *[self.scout] * len(self.points()))
            if not self.begin(float((grad * (self.start - self.scout)).sum())):
                return
        else:
            _, grad = self.gradient(closure, *self.points())
            if self.rule.probe == "steps" and self.t % 8 == 0:
                self.measure(closure, grad)
        self.t += 1
        self.move(grad)

    def measure(self, closure: Callable[[], Any], grad: Tensor) -> None:
        """The curvature along the scout's last move, smoothed over the probes."""
        (point,) = self.points()
        _, farther = self.gradient(closure, point + self.moved)
        along = float((self.moved * (farther - grad)).sum())
        length = float((self.root(self.noise) * self.moved**2).sum())
        self.along += 0.1 * (along - self.along)
        self.length += 0.1 * (length - self.length)

    def begin(self, slope: float) -> bool:
        vanishes = self.slope / max(self.slope - slope, self.slope / LEAP**2)
        trusted = 1.0 / LEAP <= vanishes <= TRUSTED
        factor = vanishes if trusted else TRUSTED if vanishes > 1.0 else 1.0 / LEAP
        self.reach, self.slope = factor * self.reach, factor * self.slope
        self.scout = self.start + factor * (self.scout - self.start)
        if trusted:
            self.average, self.sum_of_weights = self.scout.clone(), 1.0
        return trusted

    def move(self, grad: Tensor) -> None:
        w, rule = self.t**self.rule.power, self.rule
        change = grad if rule.metric == "squares" else math.sqrt(0.5) * (grad - self.last)
        self.last = grad
        self.sum_of_squares += w * w
        self.noise += w * w / self.sum_of_squares * (change**2 - self.noise)
        step = rule.factor * self.reach * w / math.sqrt(self.sum_of_squares)
        if rule.cap:
            step = min(step, self.reach * math.sqrt(self.trace / max(self.push, 1e-30)))
        if self.along > 0.0:
            step = min(self.length / self.along, 2.0 * self.taken)
        self.taken = step
        root = self.root(self.noise)
        self.trace, self.push = float(root.sum()), float((grad * grad / root).sum())
        verdict = float((grad * (self.start - self.average)).sum())
        self.moved = -step * grad / root
        self.scout = self.scout + self.moved
        self.sum_of_weights += w
        self.average = self.average + w / self.sum_of_weights * (self.scout - self.average)
        self.judge(verdict, math.sqrt(float((root * (self.average - self.start) ** 2).sum())))

    def judge(self, verdict: float, distance: float) -> None:
        weight = self.t**self.rule.verdict_power
        self.sum_of_verdicts += weight
        self.verdict += weight / self.sum_of_verdicts * (verdict - self.verdict)
        if self.verdict > 0.0 or self.rule.reach == "always":
            self.reach = max(self.reach, distance / math.sqrt(self.trace))
        elif self.rule.reach == "shrinking":
            self.reach *= 1.0 - 0.25 / self.t
