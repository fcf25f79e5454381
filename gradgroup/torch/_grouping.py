"""The paper's optimizer as a ``torch.optim.Optimizer``.

The idea. A round evaluates the gradient at every member in turn: :meth:`GradientGrouping.members`
puts a member's values into the model, and takes the gradients away when it is left. Then the
solve (``gradgroup.core``) needs two N×N matrices, gives a step each, and the members move.
Between rounds the model's parameters are the published point, so there is nothing to switch
before evaluating or saving.

This module only keeps the books: which stage a run is in, what was refused, what is saved.
The mathematics is in ``gradgroup.core``, the numbers in ``_members.py``.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from gradgroup.core._directions import Direction, resolve
from gradgroup.core._solve import ALPHA, Eps, check_count
from gradgroup.torch._batched import LossFn, batched_gradients
from gradgroup.torch._groups import Group, check_group, check_keys, check_spread
from gradgroup.torch._members import Bucket, buckets_of
from gradgroup.torch._solve import Diagnostics, Settings, Solve

Closure = Callable[[], Any]


class Member:
    """A member while it is the model. Set :attr:`loss` to let the safeguard know its loss."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.loss: Tensor | float | None = None


class GradientGrouping(torch.optim.Optimizer):
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

    # torch.amp.GradScaler then leaves unscaling to us, because it sees one member only.
    _step_supports_amp_scaling = True

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
        self._forget()
        super().__init__(params, {"alpha": alpha, "eps": eps, "weight_decay": weight_decay})

    def _forget(self) -> None:
        """Hold nothing but settings; members are built, or restored, at the next round."""
        self._solves: list[Solve] = []
        self._losses: list[Any] = []
        self._held: Member | None = None
        self._warned = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; the members of its solve are spread anew.

        Parameters
        ----------
        param_group : dict
            ``params``, and the group's own settings.
        """
        if isinstance(param_group, dict):
            check_keys(param_group, self.defaults)
        self._unload()
        super().add_param_group(param_group)
        group = self.param_groups[-1] = Group(self.param_groups[-1])
        check_group(group, self.param_groups[0], self._settings.per_group)

    # Rounds: a gradient at every member.

    def members(self) -> Generator[Member, None, None]:
        """Go through the members; while one is held, the model has its values.

        Yields
        ------
        Member
            Its ``index``; set its ``loss`` so that the safeguard can use it. Gradients left in
            the model by ``backward()`` are this member's.

        Examples
        --------
        >>> import torch
        >>> model = torch.nn.Linear(3, 1)
        >>> opt = GradientGrouping(model.parameters())
        >>> x, y = torch.randn(8, 3), torch.randn(8, 1)
        >>> for member, xi, yi in zip(opt.members(), x.chunk(2), y.chunk(2)):
        ...     loss = torch.nn.functional.mse_loss(model(xi), yi)
        ...     loss.backward()
        ...     member.loss = loss
        >>> loss = opt.step()
        """
        self._prepare()
        for i in range(self._settings.members):
            self._take_held()
            self._held = Member(i)
            for bucket in self._buckets():
                bucket.enter(i)
            try:
                yield self._held
            finally:
                for bucket in self._buckets():
                    bucket.leave()
        self._take_held()

    @torch.no_grad()
    def _take_held(self) -> None:
        """Take the gradients of the member that was the model last."""
        member, self._held = self._held, None
        if member is None:
            return
        if not sum(bucket.collect(member.index) for bucket in self._buckets()):
            raise RuntimeError(
                "No parameter has a gradient after a member was evaluated: the closure (or the "
                "loop over members()) must call loss.backward()."
            )
        self._losses.append(member.loss)
        if len(self._losses) == self._settings.members:
            self._close_round()

    def _evaluate(self, closure: Closure) -> None:
        with contextlib.closing(self.members()) as members:
            for member in members:
                with torch.enable_grad():
                    member.loss = closure()
                if member.loss is None:
                    raise TypeError(
                        "The closure returned nothing: end it with `return loss`, as for "
                        "torch.optim.LBFGS."
                    )

    def _close_round(self) -> None:
        """All gradients are here: form the equations, which shows whether they are finite."""
        for solve in self._solves:
            solve.decay()
            solve.form()
        if not all(solve.finite for solve in self._solves):
            # A GradScaler looks for Inf at the gradients in the model: the last member's.
            grad = next(p.grad for p in self._params() if p.grad is not None)
            grad.view(-1)[:1] = math.inf

    # The step.

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Move all members, and publish.

        Parameters
        ----------
        closure : callable, optional
            Clears the gradients, evaluates the model, calls ``backward()`` and returns the
            loss. It is called once a member. Without it, the gradients must have been
            evaluated in a loop over :meth:`members`.

        Returns
        -------
        Tensor or float or None
            The mean of the closure's losses, at the members as they were before the step.
        """
        if closure is not None:
            self._evaluate(closure)
        self._take_held()
        return self._finish()

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
            for bucket in self._buckets()
            for p, stack in zip(bucket.params, bucket.stacked(bucket.thetas), strict=True)
        }
        with torch.enable_grad():
            grads, losses = batched_gradients(model, loss_fn, batch, stacked, common=common)
        for bucket in self._buckets():
            for p, row in zip(bucket.params, bucket.stacked(bucket.grads), strict=True):
                row.copy_(grads[names[p]])
            bucket.unused.clear()
        self._losses = list(losses.detach())
        self._close_round()
        self._finish()
        return losses.detach().mean()

    def _finish(self) -> Any:
        """Act on a complete round, and return its mean loss."""
        n = self._settings.members
        raw, self._losses = self._losses, []
        if len(raw) != n:
            raise RuntimeError(
                f"step() needs the gradients of all {n} members but has those of {len(raw)}: pass "
                "it a closure, or evaluate every member in a loop over members() before it."
            )
        self._unscale()
        losses = _numbers(raw)
        finite = all(solve.finite for solve in self._solves)
        if not finite or not math.isfinite(sum(losses or ())):
            for solve in self._solves:
                solve.refuse()
            self._say_refused()
        elif not all([solve.advance(losses) for solve in self._solves]):  # noqa: C419
            self._say_refused()
        for p in self._params():
            p.grad = None
        return _mean(raw)

    def _say_refused(self) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                "A loss, a gradient or a step was NaN, Inf or too large: the step was refused and "
                "the parameters are unchanged. This is said once; diagnostics.refused counts them.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _unscale(self) -> None:
        """Divide the gradients by the scale of a GradScaler, if one called the step."""
        scale = getattr(self, "grad_scale", None)
        if scale is None:
            if getattr(self, "found_inf", None) is not None:
                raise RuntimeError(
                    "scaler.unscale_(optimizer) reaches the gradients of one member only: leave "
                    "it out, scaler.step(optimizer) unscales those of all members."
                )
            return
        for solve in self._solves:
            # The penalty's gradient was added unscaled.
            solve.decay(float(scale) - 1.0)
            for bucket in solve.buckets:
                bucket.grads.div_(scale.to(bucket.grads))
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

    def _params(self) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    def _buckets(self) -> Iterator[Bucket]:
        return (bucket for solve in self._solves for bucket in solve.buckets)

    @torch.no_grad()
    def _prepare(self) -> None:
        """Begin a round: members are there, and where the model's parameters want them."""
        self._losses, self._held = [], None
        if any(bucket.moved_away() for bucket in self._buckets()):
            self._unload()
        self._load()
        for solve in self._solves:
            for bucket in solve.buckets:
                if bucket.changed():
                    bucket.follow(solve.served)

    @torch.no_grad()
    def _load(self) -> None:
        """Build the members, from the optimizer's state where it has them."""
        if self._solves:
            return
        shared: dict[int, list[tuple[int, Bucket]]] = defaultdict(list)
        for number, bucket in buckets_of(self.param_groups, self._settings.members):
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

    @contextlib.contextmanager
    def _saved(self) -> Iterator[None]:
        """While it lasts, ``self.state`` holds the run; otherwise only the members do."""
        self._load()
        self._save()
        try:
            yield
        finally:
            self.state.clear()

    @torch.no_grad()
    def _save(self) -> None:
        """Copy the members and the memory of the run to ``self.state``."""
        for solve in self._solves:
            for bucket in solve.buckets:
                bucket.save(self.state)
            self.state[solve.buckets[0].params[0]]["solve"] = solve.record()

    def _unload(self) -> None:
        """Leave the run in ``self.state``, from where the next round takes it up again."""
        if hasattr(self, "state"):
            self._save()
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        """A snapshot of the members and of the run, from which it resumes bit for bit."""
        with self._saved():
            return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a run where :meth:`state_dict` was called; load the model's state as well."""
        self._forget()
        super().load_state_dict(state_dict)
        self.param_groups[:] = [Group(group) for group in self.param_groups]

    def __getstate__(self) -> dict[str, Any]:
        with self._saved():
            own = {"_settings": self._settings, "state": defaultdict(dict, self.state)}
            return super().__getstate__() | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forget()
        super().__setstate__(state)


def _numbers(losses: list[Any]) -> list[float] | None:
    """The losses as Python numbers, or None when some are not known."""
    if any(loss is None for loss in losses):
        return None
    for loss in losses:
        if isinstance(loss, Tensor) and loss.numel() != 1:
            raise ValueError(
                f"A loss must be one number, but got a tensor of shape {tuple(loss.shape)}: "
                "reduce it, for example with .mean()."
            )
    return [float(loss) for loss in losses]


def _mean(losses: list[Any]) -> Any:
    if any(loss is None for loss in losses):
        return None
    if all(isinstance(loss, Tensor) for loss in losses):
        return torch.stack([loss.detach().reshape(()) for loss in losses]).mean()
    return sum(float(loss) for loss in losses) / len(losses)
