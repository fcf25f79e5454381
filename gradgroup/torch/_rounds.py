"""Rounds: what every optimizer here has in common.

The idea. A round evaluates the gradient at one or several points in turn: :meth:`Rounds.members`
puts a point's values into the model, and takes the gradients away when it is left. A step ends the
round. Between rounds the model's parameters are the published point, so there is nothing to switch
before evaluating or saving.

What an optimizer remembers of size d is in layouts of its own (``_layout.py``), and only when it is
saved in ``state``: there it is a tensor for each parameter, as for any optimizer of PyTorch, beside
the record of its numbers.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gradgroup.torch._groups import Group, check_keys

Closure = Callable[[], Any]


class Member:
    """A member while it is the model. Set :attr:`loss` to let the optimizer know its loss."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.loss: Tensor | float | None = None


class Place(Protocol):
    """Where the points of some parameters are kept."""

    def enter(self, i: int) -> None:
        """Make point ``i`` the model."""

    def leave(self) -> None:
        """Give the model its own tensors back."""

    def collect(self, i: int) -> int:
        """Take the model's gradients for those of point ``i``; how many there were."""

    def moved_away(self) -> bool:
        """Whether the model's parameters are other tensors by now."""


class Rounds(torch.optim.Optimizer):
    """An optimizer whose step follows on the gradients of several points."""

    # torch.amp.GradScaler then leaves unscaling to us, because it sees one member only.
    _step_supports_amp_scaling = True
    # What is pickled beside the parameter groups and the state.
    _own: tuple[str, ...] = ()

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self._forget()
        super().__init__(params, defaults)

    # What an optimizer must say of itself.

    def _round(self) -> int:
        """How many gradients a round has."""
        raise NotImplementedError

    def _places(self) -> Iterator[Place]:
        """Where the points are; none before they are built."""
        raise NotImplementedError

    def _load(self) -> None:
        """Build them, from ``state`` where it has them."""
        raise NotImplementedError

    def _save(self) -> None:
        """Copy everything to ``state``."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Hold nothing but settings; what is remembered is built, or restored, when needed."""
        self._losses: list[Any] = []
        self._held: Member | None = None
        self._warned = False

    def _check_group(self, group: dict[str, Any]) -> None:
        """Refuse settings that cannot be."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Points are there, and where the model's parameters want them."""

    def _close(self) -> None:
        """All gradients of the round are here."""

    def _finish(self) -> Any:
        """Act on a complete round, and return its mean loss."""
        raise NotImplementedError

    # Rounds.

    def members(self) -> Generator[Member, None, None]:
        """Go through the members; while one is held, the model has its values.

        Yields
        ------
        Member
            Its ``index``; set its ``loss`` so that the optimizer can use it. Gradients left in
            the model by ``backward()`` are this member's.

        Examples
        --------
        >>> import torch, gradgroup
        >>> model = torch.nn.Linear(3, 1)
        >>> opt = gradgroup.torch.GradientGrouping(model.parameters())
        >>> x, y = torch.randn(8, 3), torch.randn(8, 1)
        >>> for member, xi, yi in zip(opt.members(), x.chunk(2), y.chunk(2)):
        ...     loss = torch.nn.functional.mse_loss(model(xi), yi)
        ...     loss.backward()
        ...     member.loss = loss
        >>> loss = opt.step()
        """
        self._prepare()
        for i in range(self._round()):
            self._take_held()
            self._held = Member(i)
            for place in self._places():
                place.enter(i)
            try:
                yield self._held
            finally:
                for place in self._places():
                    place.leave()
        self._take_held()

    def _prepare(self) -> None:
        self._losses, self._held = [], None
        if any(place.moved_away() for place in self._places()):
            self._unload()
        self._load()
        self._begin()

    def _take_held(self) -> None:
        """Take the gradients of the member that was the model last."""
        if self._held is not None:
            member, self._held = self._held, None
            with torch.no_grad():
                self._take(member)

    def _take(self, member: Member) -> None:
        if not sum([place.collect(member.index) for place in self._places()]):
            raise RuntimeError(
                "No parameter has a gradient after a member was evaluated: the closure (or the "
                "loop over members()) must call loss.backward()."
            )
        self._losses.append(member.loss)
        if len(self._losses) == self._round():
            self._close()

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
        n = self._round()
        if len(self._losses) != n:
            has, self._losses = len(self._losses), []
            raise RuntimeError(
                f"step() needs the gradients of all {n} members but has those of {has}: pass "
                "it a closure, or evaluate every member in a loop over members() before it."
            )
        return self._finish()

    def _take_losses(self) -> list[Any]:
        losses, self._losses = self._losses, []
        return losses

    def _mark_overflow(self) -> None:
        """Let a GradScaler, which looks at the gradients in the model, know of an overflow."""
        grad = next(p.grad for p in self._params() if p.grad is not None)
        grad.view(-1)[:1] = math.inf

    def _scaled_by(self) -> float | None:
        """The scale of the gradients, if a GradScaler called the step."""
        scale = getattr(self, "grad_scale", None)
        if scale is None and getattr(self, "found_inf", None) is not None and self._round() > 1:
            raise RuntimeError(
                "scaler.unscale_(optimizer) reaches the gradients of one member only: leave "
                "it out, scaler.step(optimizer) unscales those of all members."
            )
        return None if scale is None else float(scale)

    def _say_refused(self) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                "A loss, a gradient or a step was NaN, Inf or too large: the step was refused and "
                "the parameters are unchanged. This is said once; diagnostics.refused counts them.",
                RuntimeWarning,
                stacklevel=5,
            )

    # Books.

    def _params(self) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; what shares a solve with it begins anew.

        Parameters
        ----------
        param_group : dict
            ``params``, and the group's own settings.
        """
        if isinstance(param_group, dict):
            check_keys(param_group, self.defaults)
        self._unload()
        super().add_param_group(param_group)
        self.param_groups[-1] = Group(self.param_groups[-1])
        self._check_group(self.param_groups[-1])

    @contextlib.contextmanager
    def _saved(self) -> Iterator[None]:
        """While it lasts, ``self.state`` holds the run; otherwise only the layouts do."""
        self._load()
        with torch.no_grad():
            self._save()
        try:
            yield
        finally:
            self.state.clear()

    def _unload(self) -> None:
        """Leave the run in ``self.state``, from where the next round takes it up again."""
        if hasattr(self, "state"):
            with torch.no_grad():
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
        # PyTorch has rounded what is kept in a better precision than the parameters'.
        saved = (k for group in state_dict["param_groups"] for k in group["params"])
        for p, k in zip(self._params(), saved, strict=True):
            for name, value in state_dict["state"].get(k, {}).items():
                if isinstance(value, Tensor):
                    self.state[p][name] = value.detach().to(p.device, copy=True)

    def __getstate__(self) -> dict[str, Any]:
        with self._saved():
            own = {name: getattr(self, name) for name in self._own}
            own["state"] = defaultdict(dict, self.state)
            return super().__getstate__() | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forget()
        super().__setstate__(state)


def numbers_of(losses: Sequence[Any]) -> list[float] | None:
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


def mean_of(losses: Sequence[Any]) -> Any:
    """The mean of the losses as they were given; None where one is not known."""
    if any(loss is None for loss in losses):
        return None
    if all(isinstance(loss, Tensor) for loss in losses):
        if len(losses) == 1:
            return losses[0].detach()
        return torch.stack([loss.detach().reshape(()) for loss in losses]).mean()
    return sum(float(loss) for loss in losses) / len(losses)
