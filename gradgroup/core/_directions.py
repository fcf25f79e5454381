"""Directions that members may follow instead of their gradients.

The idea. The solve never uses that ``gᵢ`` is a gradient: "update directions obtained using
any of the above approaches can be substituted in place of ∇f(θ)" (the paper's appendix on
related work). Each rule here turns the gradients of all members into directions; every
member has a state of its own, kept as a row of the state's arrays.

Conventions. A rule is a pure function ``rule(grads, thetas, state) -> (directions, state)``
of arrays of shape (N, d). ``state`` is a dict, empty at first; its values are arrays whose
last axis is d, or Python numbers. Directions point uphill, as gradients do, and their length
does not matter: the solve finds the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from gradgroup.core._namespace import namespace
from gradgroup.core._solve import Array

State: TypeAlias = dict[str, Any]
Direction: TypeAlias = Callable[[Array, Array, State], tuple[Array, State]]


def momentum(
    grads: Array, thetas: Array, state: State, *, beta: float = 0.9
) -> tuple[Array, State]:
    """Polyak's heavy ball: a decaying sum of past gradients."""
    velocity = beta * state["velocity"] + grads if state else grads
    return velocity, {"velocity": velocity}


def nesterov(
    grads: Array, thetas: Array, state: State, *, beta: float = 0.9
) -> tuple[Array, State]:
    """Nesterov's momentum in the form of Sutskever et al., as in ``torch.optim.SGD``."""
    velocity, state = momentum(grads, thetas, state, beta=beta)
    return grads + beta * velocity, state


def rmsprop(
    grads: Array, thetas: Array, state: State, *, beta: float = 0.99, tiny: float = 1e-8
) -> tuple[Array, State]:
    """Gradients divided by the root of a running mean of their squares."""
    xp = namespace(grads)
    square = state["square"] if state else xp.zeros_like(grads)
    square = beta * square + (1.0 - beta) * grads * grads
    return grads / (xp.sqrt(square) + tiny), {"square": square}


def adam(
    grads: Array,
    thetas: Array,
    state: State,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    tiny: float = 1e-8,
) -> tuple[Array, State]:
    """Adam: a running mean of gradients over the root of that of their squares."""
    xp = namespace(grads)
    nothing = xp.zeros_like(grads)
    mean = betas[0] * state.get("mean", nothing) + (1.0 - betas[0]) * grads
    square = betas[1] * state.get("square", nothing) + (1.0 - betas[1]) * grads * grads
    count = state.get("count", 0) + 1
    root = xp.sqrt(square / (1.0 - betas[1] ** count))
    directions = mean / (1.0 - betas[0] ** count) / (root + tiny)
    return directions, {"mean": mean, "square": square, "count": count}


def lbfgs(grads: Array, thetas: Array, state: State, *, history: int = 10) -> tuple[Array, State]:
    """Gradients multiplied by each member's own L-BFGS inverse Hessian.

    Pairs without positive curvature are left out, member by member.
    """
    xp = namespace(grads)
    if not state:
        empty = xp.zeros_like(grads)[None, ...][:0, ...]
        return grads, {
            "moves": empty,
            "changes": empty,
            "thetas": thetas + 0.0,
            "grads": grads + 0.0,
        }
    move, change = thetas - state["thetas"], grads - state["grads"]
    moves = xp.concat([state["moves"], move[None, ...]])[-history:, ...]
    changes = xp.concat([state["changes"], change[None, ...]])[-history:, ...]
    directions = _two_loops(grads, moves, changes)
    return directions, {
        "moves": moves,
        "changes": changes,
        "thetas": thetas + 0.0,
        "grads": grads + 0.0,
    }


def _two_loops(grads: Array, moves: Array, changes: Array) -> Array:
    """The two-loop recursion for all members at once; pairs are (history, N, d)."""
    xp = namespace(grads)
    curvature = xp.sum(moves * changes, axis=-1, keepdims=True)
    length = xp.sum(changes * changes, axis=-1, keepdims=True)
    sound = curvature > 1e-10 * length
    safe = xp.where(sound, curvature, xp.ones_like(curvature))
    rho = xp.where(sound, 1.0 / safe, xp.zeros_like(safe))
    q, taken = grads, []
    for i in reversed(range(moves.shape[0])):
        a = rho[i, ...] * xp.sum(moves[i, ...] * q, axis=-1, keepdims=True)
        q = q - a * changes[i, ...]
        taken.append(a)
    q = q * _newest_scale(sound, curvature, length)
    for i in range(moves.shape[0]):
        b = rho[i, ...] * xp.sum(changes[i, ...] * q, axis=-1, keepdims=True)
        q = q + moves[i, ...] * (taken[-1 - i] - b)
    return q


def _newest_scale(sound: Array, curvature: Array, length: Array) -> Array:
    """``sᵀy / yᵀy`` of each member's newest sound pair: the scale of the inverse Hessian."""
    xp = namespace(curvature)
    scale = xp.ones_like(curvature[0, ...])
    for i in range(curvature.shape[0]):
        here = sound[i, ...]
        ratio = curvature[i, ...] / xp.where(here, length[i, ...], scale)
        scale = xp.where(here, ratio, scale)
    return scale


BY_NAME: dict[str, Direction | None] = {
    "gradient": None,
    "momentum": momentum,
    "nesterov": nesterov,
    "rmsprop": rmsprop,
    "adam": adam,
    "lbfgs": lbfgs,
}


def resolve(direction: str | Direction) -> Direction | None:
    """The rule meant by a name or given by the user; None is the gradient itself."""
    if callable(direction):
        return direction
    if direction not in BY_NAME:
        names = ", ".join(f'"{name}"' for name in BY_NAME)
        raise ValueError(
            f"direction must be one of {names}, or a function "
            f"(grads, thetas, state) -> (directions, state), but got {direction!r}."
        )
    return BY_NAME[direction]
