"""One thread for everything, because the tests' arrays are too small to share among cores."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Optimizers take the start of their members from PyTorch's global generator."""
    torch.manual_seed(0)
