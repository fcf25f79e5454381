"""The paper's Algorithm 1 as plainly as it can be written: what the fast path must equal.

Members are columns here, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def gradient_grouping(
    theta: Tensor,
    gradient: Callable[[Tensor], Tensor],
    rounds: int,
    alpha: float = 0.9,
    eps: float = 1e-4,
) -> Tensor:
    """Run Algorithm 1 with the appendix's practical modifications; ``theta`` is (d, N)."""
    n = theta.shape[1]
    laplacian = n * torch.eye(n, dtype=torch.float64) - torch.ones(n, n, dtype=torch.float64)
    ones = torch.ones(n, dtype=torch.float64)
    for _ in range(rounds):
        g = torch.stack([gradient(column) for column in theta.T], dim=1)
        gg = (g.T @ g).double() * laplacian
        gt = (g.T @ theta).double() * laplacian
        values, vectors = torch.linalg.eigh(gg)
        inverse = vectors @ torch.diag(1.0 / values.clamp(min=eps)) @ vectors.T
        eta = -alpha * inverse @ (gt @ ones)
        theta = theta + g @ torch.diag(eta).to(g)
    return theta
