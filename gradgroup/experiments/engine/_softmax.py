"""Losses and gradients of many softmax regressions at once.

The idea. Runs that see the same samples lie side by side in one matrix, so that one matrix product
serves them all: samples are read once however many runs there are, and BLAS works on sizes at which
it is fast. Different samples (those of another seed, of another member) are further matrices of a
stack.

Conventions. ``weights`` is (groups, runs, outputs, inputs): the runs of a group see the same
samples ``x`` (groups, samples, inputs) with ``targets`` (groups, outputs, samples), one-hot. Logits
and residuals are (groups, runs, outputs, samples). A residual is (p − y)/samples, so that a
gradient is residual times samples.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def evaluate(weights: Array, x: Array, labels: Array, grads: Array) -> Array:
    """Losses (groups, runs) of labels (groups, samples); gradients are written to ``grads``."""
    logits = logits_of(weights, x)
    losses = losses_of(logits, one_hot(labels, weights.shape[2], weights.dtype))
    gradients_of(logits, x, grads)
    return losses


def one_hot(labels: Array, outputs: int, dtype: Any) -> Array:
    """Targets (…, outputs, samples) of labels (…, samples)."""
    found: Array = (labels[..., None, :] == np.arange(outputs)[:, None]).astype(dtype)
    return found


def logits_of(weights: Array, x: Array) -> Array:
    """``W xᵀ`` for all runs."""
    groups, runs, outputs, inputs = weights.shape
    found = weights.reshape(groups, runs * outputs, inputs) @ x.transpose(0, 2, 1)
    return found.reshape(groups, runs, outputs, -1)


def losses_of(logits: Array, targets: Array) -> Array:
    """Mean losses (groups, runs); what was the logits is the residuals afterwards."""
    y = targets[:, None]
    logits -= logits.max(axis=2, keepdims=True)
    chosen = (logits * y).sum(axis=2)
    np.exp(logits, out=logits)
    total = logits.sum(axis=2, keepdims=True)
    losses = np.log(total[:, :, 0]) - chosen
    logits /= total
    logits -= y
    logits *= 1.0 / logits.shape[3]
    found: Array = losses.mean(axis=2, dtype=np.float64)
    return found


def gradients_of(residuals: Array, x: Array, out: Array) -> None:
    """Gradients like the weights, written to ``out``."""
    groups, runs, outputs, samples = residuals.shape
    flat = out.reshape(groups, runs * outputs, -1)
    np.matmul(residuals.reshape(groups, runs * outputs, samples), x, out=flat)
