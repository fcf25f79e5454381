"""All members' gradients from one vectorised evaluation.

The idea. ``torch.func.vmap`` over ``functional_call`` evaluates a model at N stacked sets of
parameters at once, which on small models costs little more than one evaluation. What cannot
be vectorised (batch normalisation that keeps running statistics) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils import _pytree as pytree

LossFn = Callable[[nn.Module, Any], Tensor]


class _Loss(nn.Module):
    """``loss_fn(model, batch)`` as a module of its own, so that its parameters can be swapped."""

    def __init__(self, model: nn.Module, loss_fn: LossFn) -> None:
        super().__init__()
        self.model = model
        self.loss_fn = loss_fn

    def forward(self, batch: Any) -> Tensor:
        return self.loss_fn(self.model, batch)


def batched_gradients(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    params: Mapping[str, Tensor],
    *,
    common: bool,
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients, stacked like ``params``, and the members' losses."""
    _refuse_running_statistics(model)
    members = next(iter(params.values())).shape[0]
    module = _Loss(model, loss_fn)

    def loss(one: Mapping[str, Tensor], samples: Any) -> Tensor:
        value = functional_call(module, {f"model.{name}": p for name, p in one.items()}, (samples,))
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise TypeError(f"loss_fn must return one number, but returned {_what(value)}.")
        return value.reshape(())

    # Members that share their samples share their dropout masks too: they differ in their
    # parameters alone, which is what makes the differences of their gradients curvature.
    vectorised = vmap(
        grad_and_value(loss),
        in_dims=(0, None if common else 0),
        randomness="same" if common else "different",
    )
    samples = batch if common else pytree.tree_map(lambda x: _shares(x, members), batch)
    return vectorised(params, samples)


def _shares(x: Any, members: int) -> Any:
    if not isinstance(x, Tensor):
        raise TypeError(
            f"Every leaf of batch must be a tensor whose first axis counts samples, but one is "
            f"{_what(x)}: bring it in through loss_fn, or pass common=True."
        )
    if x.ndim == 0 or x.shape[0] % members:
        raise ValueError(
            f"A batch of shape {tuple(x.shape)} cannot be shared equally by {members} members: "
            "make its first axis a multiple of the members (drop_last=True in the loader), or "
            "pass common=True to show all members the whole batch."
        )
    return x.reshape(members, -1, *x.shape[1:])


def _refuse_running_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        batch_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if batch_norm and module.training and module.track_running_stats:
            raise RuntimeError(
                f"step_batched cannot keep the running statistics of {name or 'the model'} "
                f"({type(module).__name__}) for several members at once: use step(closure), put "
                "the layer in eval() mode, or build it with track_running_stats=False."
            )


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"an object of type {type(value).__name__}"
