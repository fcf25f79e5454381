"""The paper's optimizer as a ``torch.optim.Optimizer``.

The idea. A round (``_rounds.py``) evaluates the gradient at every member in turn. Then the solve
(``gradgroup.core``) needs two N×N matrices, gives a step each, and the members move.

This module only keeps the books: which stage a run is in, what was refused, what is saved.
The mathematics is in ``gradgroup.core``, the numbers in ``_members.py``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from gradgroup.core._directions import Direction, resolve
from gradgroup.core._solve import ALPHA, Eps, check_count
from gradgroup.torch._batched import LossFn, batched_gradients
from gradgroup.torch._groups import check_group, check_solve, check_spread
from gradgroup.torch._layout import layouts_of
from gradgroup.torch._members import Bucket
from gradgroup.torch._rounds import Rounds, mean_of, numbers_of
from gradgroup.torch._solve import Diagnostics, Settings, Solve


class GradientGrouping(Rounds):
    """Gradient Grouping: N members, a gradient each, and no learning rate.

    Parameters
    ----------
    params : iterable of Tensor or of dict
        The model's parameters, or groups of them, as for any optimizer. A group may have its
        own ``weight_decay``, and with ``per_group=True`` its own ``alpha`` and ``eps``.
    members : int, default 2
        N, the number of parameter vectors.
    alpha : float, default 0.9
        What part of the way to the meeting point to go.
    eps : float or "relative", default "relative"
        The smallest eigenvalue the solve divides by; a number is the paper's ε (1e-4 there),
        "relative" makes it 1e-8 of the largest eigenvalue and the steps free of any scale.
    direction : str or callable, default "gradient"
        What members move along: "gradient", "momentum", "nesterov", "rmsprop", "adam",
        "lbfgs", or a function ``(grads, thetas, state) -> (directions, state)`` of (N, d)
        tensors; ``state`` is a dict, empty at first.
    spread : float or "auto", default "auto"
        How far apart the members start: the standard deviation of every number about the
        model's value, or "auto" for a calibration during the first rounds (at least three)
        that is independent of the scale of the parameters and of the loss.
    weight_decay : float, default 0
        λ of a penalty ``λ/2 ‖θ‖²``, added to each member's gradient.
    safeguard : bool, default True
        Keep all members to one common step and bound it, so that no run blows up. ``False``
        gives every member the step of Lemma 1, as in the paper.
    publish : "mean" or "best", default "mean"
        Which point the model holds between steps: the members' mean, or the member that had
        the lowest loss in the last round.
    per_group : bool, default False
        Solve for each parameter group on its own instead of for all parameters together.

    Notes
    -----
    Between steps the model's parameters are the published point. Members are created at the
    first round, from the parameters as they are then. If the parameters are changed between
    two steps (a checkpoint is loaded, a constraint applied), the members move along.

    ``safeguard=False, eps=1e-4, spread=...`` is the paper's algorithm to the letter.

    Every evaluation of a member is an ordinary forward pass in training mode: batch
    normalisation updates its running statistics N times a step, dropout draws a mask for each
    member. ``torch.amp.GradScaler`` works without a closure; gradients are clipped, if at
    all, while a member is the model. Complex parameters and sparse gradients are refused.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> x, target = torch.randn(64, 3), torch.randn(64, 1)
    >>> model = torch.nn.Linear(3, 1)
    >>> opt = GradientGrouping(model.parameters())
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = torch.nn.functional.mse_loss(model(x), target)
    ...     loss.backward()
    ...     return loss
    >>> first = closure()
    >>> for _ in range(50):
    ...     loss = opt.step(closure)
    >>> bool(loss < first)
    True
    """

    _own = ("_settings",)

    def __init__(
        self,
        params: Iterable[Any],
        members: int = 2,
        *,
        alpha: float = ALPHA,
        eps: Eps = "relative",
        direction: str | Direction = "gradient",
        spread: float | Literal["auto"] = "auto",
        weight_decay: float = 0.0,
        safeguard: bool = True,
        publish: Literal["mean", "best"] = "mean",
        per_group: bool = False,
    ) -> None:
        check_count(members)
        check_spread(spread)
        if publish not in ("mean", "best"):
            raise ValueError(f'publish must be "mean" or "best", but got {publish!r}.')
        # One number from the global generator, so that torch.manual_seed decides the members.
        seed = int(torch.randint(2**31, ()))
        rule = resolve(direction)
        self._settings = Settings(members, rule, spread, safeguard, publish, per_group, seed)
        super().__init__(params, {"alpha": alpha, "eps": eps, "weight_decay": weight_decay})

    # Rounds: a gradient at every member.

    def _round(self) -> int:
        return self._settings.members

    def _forget(self) -> None:
        super()._forget()
        self._solves: list[Solve] = []

    def _places(self) -> Iterator[Bucket]:
        return (bucket for solve in self._solves for bucket in solve.buckets)

    def _begin(self) -> None:
        for solve in self._solves:
            for bucket in solve.buckets:
                if bucket.changed():
                    bucket.follow(solve.served)

    def _close(self) -> None:
        """Form the equations, which shows whether the gradients are finite."""
        for solve in self._solves:
            solve.decay()
            solve.form()
        if not all(solve.finite for solve in self._solves):
            self._mark_overflow()

    @torch.no_grad()
    def step_batched(
        self, model: torch.nn.Module, loss_fn: LossFn, batch: Any, *, common: bool = False
    ) -> Tensor:
        """Evaluate all members in one vectorised pass, then step.

        Parameters
        ----------
        model : torch.nn.Module
            The module that has the optimizer's parameters.
        loss_fn : callable
            ``loss_fn(model, batch)``, the loss of a member on its samples; it must use
            nothing but PyTorch operations that ``torch.func.vmap`` knows.
        batch : tensor, or tuple, list or dict of tensors
            First axes count samples; each member gets an equal share of them, in order.
        common : bool, default False
            Show the whole batch to every member instead.

        Returns
        -------
        Tensor
            The mean loss of the members before the step.

        Examples
        --------
        >>> import torch
        >>> from torch.nn.functional import mse_loss
        >>> model = torch.nn.Linear(3, 1)
        >>> opt = GradientGrouping(model.parameters())
        >>> x, y = torch.randn(8, 3), torch.randn(8, 1)
        >>> loss = opt.step_batched(model, lambda m, b: mse_loss(m(b[0]), b[1]), (x, y))
        """
        self._prepare()
        names = self._names(model)
        stacked = {
            names[p]: stack
            for bucket in self._places()
            for p, stack in zip(bucket.params, bucket.stacked(bucket.thetas), strict=True)
        }
        with torch.enable_grad():
            grads, losses = batched_gradients(model, loss_fn, batch, stacked, common=common)
        for bucket in self._places():
            for p, row in zip(bucket.params, bucket.stacked(bucket.grads), strict=True):
                row.copy_(grads[names[p]])
            bucket.unused.clear()
        self._losses = list(losses.detach())
        self._close()
        self._finish()
        return losses.detach().mean()

    def _finish(self) -> Any:
        raw = self._take_losses()
        self._unscale()
        losses = numbers_of(raw)
        finite = all(solve.finite for solve in self._solves)
        if not finite or not math.isfinite(sum(losses or ())):
            for solve in self._solves:
                solve.refuse()
            self._say_refused()
        elif not all([solve.advance(losses) for solve in self._solves]):  # noqa: C419
            self._say_refused()
        for p in self._params():
            p.grad = None
        return mean_of(raw)

    def _unscale(self) -> None:
        """Divide the gradients by the scale of a GradScaler, if one called the step."""
        scale = self._scaled_by()
        if scale is None:
            return
        for solve in self._solves:
            # The penalty's gradient was added unscaled.
            solve.decay(scale - 1.0)
            for bucket in solve.buckets:
                bucket.grads.div_(scale)
            solve.form()

    # What a run has come to.

    @property
    def diagnostics(self) -> Diagnostics | list[Diagnostics]:
        """What the last step did; with ``per_group=True`` a list, one for each group.

        Reading it takes one pass over the members, for Ψ.
        """
        self._load()
        found = [solve.diagnostics() for solve in self._solves]
        return found if self._settings.per_group else found[0]

    # Books.

    def _names(self, model: torch.nn.Module) -> dict[Tensor, str]:
        """What the model calls the optimizer's parameters."""
        names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        missing = sum(p not in names for p in self._params())
        if missing:
            raise ValueError(
                f"{missing} of the optimizer's parameters do not belong to the model given to "
                "step_batched: give it the module that contains them all."
            )
        return names

    def _check_group(self, group: dict[str, Any]) -> None:
        check_solve(group, self.param_groups[0], self._settings.per_group)
        check_group(group)

    @torch.no_grad()
    def _load(self) -> None:
        """Build the members, from the optimizer's state where it has them."""
        if self._solves:
            return
        shared: dict[int, list[tuple[int, Bucket]]] = defaultdict(list)
        build = partial(Bucket, members=self._settings.members)
        for number, bucket in layouts_of(self.param_groups, build):
            shared[number if self._settings.per_group else 0].append((number, bucket))
        self._solves = [self._solve(found) for found in shared.values()]
        self.state.clear()

    def _solve(self, found: list[tuple[int, Bucket]]) -> Solve:
        groups = [self.param_groups[number] for number, _ in found]
        buckets = [bucket for _, bucket in found]
        solve = Solve(
            self._settings,
            buckets,
            [group["weight_decay"] for group in groups],
            groups[0]["alpha"],
            groups[0]["eps"],
        )
        record = self.state.get(buckets[0].params[0], {}).get("solve")
        restored = [bucket.restore(self.state) for bucket in buckets]
        if record is not None and all(restored):
            solve.restore(record)
            for bucket in buckets:
                bucket.follow(solve.served)
        else:
            solve.scatter()
        return solve

    def _save(self) -> None:
        """Copy the members and the memory of the run to ``self.state``."""
        for solve in self._solves:
            for bucket in solve.buckets:
                bucket.save(self.state)
            self.state[solve.buckets[0].params[0]]["solve"] = solve.record()
