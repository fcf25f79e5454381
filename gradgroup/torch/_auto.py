"""``AutoGrouping`` as a ``torch.optim.Optimizer``.

The idea is at the head of ``gradgroup/core/_auto.py``, which decides; this module keeps the books:
which phase a run is in, what was refused, what is saved. The arrays are in ``_trail.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from gradgroup.core._auto import (
    Pace,
    Phase,
    decayed,
    judge,
    learn,
    look,
    order,
    shorten,
    unit_of,
)
from gradgroup.torch._groups import check_group
from gradgroup.torch._layout import layouts_of
from gradgroup.torch._rounds import Rounds, mean_of, numbers_of
from gradgroup.torch._trail import Trail, added


class Pacing(NamedTuple):
    """How fast ``AutoGrouping`` goes and why, for a logger."""

    step: float
    """η of the last step: about how far every number of the model's scout went."""
    reach: float
    """R: how far the model's numbers have come from the start, as a weighted root mean square."""
    noise: float
    """The typical noise in a number of the gradient, as a mean over all of them."""
    why: str
    """Why the step is as long as it is."""
    calibrating: bool
    """Whether the length of the first step is still being looked for."""
    refused: int
    """Steps so far that had NaN or Inf in a loss or gradient and moved nothing."""


class AutoGrouping(Rounds):
    """Training without a number to tune.

    One gradient a step, taken at a point near the average of where the trajectory has been; that
    average is what the model holds between steps. How far to step is found from the way the
    model has come and from the noise in the gradients, coordinate by coordinate, in any unit of
    the features and of the loss.

    Parameters
    ----------
    params : iterable of Tensor or of dict
        The model's parameters, or groups of them, as for any optimizer. A group may have its
        own ``weight_decay``.
    members : int, default 1
        How many gradients a step averages: the closure is called so many times, to see its own
        share of the samples each time. More of them mean less noise, and so longer steps.
    weight_decay : float, default 0
        Decoupled, as in AdamW: every step takes this times the step size off the parameters,
        in proportion to them.

    Notes
    -----
    Between steps the model's parameters are the averaged point, to evaluate, to serve and to
    save. The gradients must be those at another point, which the model holds while the closure
    runs, or in a loop over :meth:`members`.

    A step costs one gradient, memory beside the model and its gradient is four numbers for each
    parameter. ``torch.amp.GradScaler``, clipping of gradients and dropout work as with any
    optimizer; batch normalisation takes its running statistics at the point of the gradients.
    Complex parameters and sparse gradients are refused. If the parameters are changed between two
    steps (a constraint is applied, say), the trajectory moves along.

    The rule is for convex and nearly convex models; it has been seen to train small networks as
    well.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> x, target = torch.randn(640, 3), torch.randn(640, 1)
    >>> model = torch.nn.Linear(3, 1)
    >>> opt = AutoGrouping(model.parameters())
    >>> for xi, yi in zip(x.split(64), target.split(64)):
    ...     def closure():
    ...         opt.zero_grad()
    ...         loss = torch.nn.functional.mse_loss(model(xi), yi)
    ...         loss.backward()
    ...         return loss
    ...     loss = opt.step(closure)
    >>> opt.diagnostics.refused
    0
    """

    _own = ("_n",)

    def __init__(
        self, params: Iterable[Any], members: int = 1, *, weight_decay: float = 0.0
    ) -> None:
        if isinstance(members, bool) or not isinstance(members, int) or members < 1:
            raise ValueError(
                f"A step needs a whole number of gradients, at least 1, but got "
                f"members={members!r}."
            )
        self._n = members
        super().__init__(params, {"weight_decay": weight_decay})

    # A round: gradients at the stand.

    def _round(self) -> int:
        return self._n

    def _forget(self) -> None:
        super()._forget()
        self._trails: list[Trail] = []
        self._groups: list[int] = []
        self._pace = Pace()
        self._refused = 0
        self._in_a_row = 0

    def _places(self) -> Iterator[Trail]:
        return iter(self._trails)

    def _begin(self) -> None:
        for trail in self._trails:
            if trail.changed():
                trail.follow()

    def _close(self) -> None:
        if self._n > 1 and not math.isfinite(self._squares(1.0)):
            self._mark_overflow()

    def _squares(self, scale: float) -> float:
        return sum(trail.squares(self._pace.unit * scale) for trail in self._trails)

    # The step.

    def _finish(self) -> Any:
        raw = self._take_losses()
        losses = numbers_of(raw)
        loss = math.nan if losses is None else sum(losses) / len(losses)
        scale = 1.0 / (self._scaled_by() or 1.0)
        squares = self._squares(scale)
        if math.isfinite(squares) and (losses is None or math.isfinite(loss)):
            self._in_a_row = 0
            self._advance(loss, scale, squares)
        else:
            self._refuse()
        for p in self._params():
            p.grad = None
        return mean_of(raw)

    def _advance(self, loss: float, scale: float, squares: float) -> None:
        if self._pace.phase is Phase.LOOK:
            if squares > 0.0:
                self._look(loss, scale, squares)
            return
        if self._pace.phase is Phase.TRY:
            self._judge(scale)
        if self._pace.phase is Phase.GO:
            self._go(scale)

    def _look(self, loss: float, scale: float, squares: float) -> None:
        unit = unit_of(squares, self._size())
        self._pace = self._pace._replace(unit=unit)
        level = squares * unit**2 / self._size()
        sums = added([trail.look(level, unit * scale) for trail in self._trails])
        self._pace, length = look(self._pace, sums, loss)
        self._stretch(length)

    def _judge(self, scale: float) -> None:
        unit = self._pace.unit * scale
        self._pace, factor = judge(self._pace, sum(t.slope(unit) for t in self._trails))
        self._stretch(factor)
        if self._pace.phase is Phase.GO:
            for trail in self._trails:
                trail.settle()

    def _stretch(self, factor: float) -> None:
        for trail in self._trails:
            trail.stretch(factor)

    def _go(self, scale: float) -> None:
        told = order(self._pace, self._size(), scale)
        each = zip(self._trails, self._groups, strict=True)
        decays = ((trail, self.param_groups[k]["weight_decay"]) for trail, k in each)
        sums = added([trail.sweep(decayed(told, decay)) for trail, decay in decays])
        self._pace = learn(self._pace, sums, told)

    def _size(self) -> int:
        return sum(trail.size for trail in self._trails)

    def _refuse(self) -> None:
        """Move nothing that is served; the point of the gradients comes back if it stays bad."""
        self._refused += 1
        self._in_a_row += 1
        self._say_refused()
        if self._pace.phase is Phase.TRY:
            self._pace, factor = shorten(self._pace)
            self._stretch(factor)
        elif self._pace.phase is Phase.GO and self._in_a_row > 1:
            for trail in self._trails:
                trail.retreat()

    @property
    def diagnostics(self) -> Pacing:
        """How fast it goes, and why."""
        self._load()
        pace = self._pace
        return Pacing(
            step=pace.step,
            reach=pace.reach,
            noise=pace.trace / self._size() / pace.unit,
            why=pace.why.value,
            calibrating=pace.phase is not Phase.GO,
            refused=self._refused,
        )

    # Books.

    def _check_group(self, group: dict[str, Any]) -> None:
        check_group(group)

    @torch.no_grad()
    def _load(self) -> None:
        if self._trails:
            return
        found = list(layouts_of(self.param_groups, partial(Trail, members=self._n)))
        self._trails = [trail for _, trail in found]
        self._groups = [number for number, _ in found]
        # With parameters that were not there before, the trajectory begins anew where it is.
        if all(trail.is_saved(self.state) for trail in self._trails):
            for trail in self._trails:
                trail.restore(self.state)
            record = self.state[self._trails[0].params[0]]["pace"]
            self._pace = Pace(**record["pace"] | {"phase": Phase(record["pace"]["phase"])})
            self._refused, self._in_a_row = record["refused"], record["in_a_row"]
        self.state.clear()

    def _save(self) -> None:
        if not self._trails:
            return
        for trail in self._trails:
            trail.save(self.state)
        self.state[self._trails[0].params[0]]["pace"] = {
            "pace": self._pace._asdict() | {"phase": int(self._pace.phase)},
            "refused": self._refused,
            "in_a_row": self._in_a_row,
        }
