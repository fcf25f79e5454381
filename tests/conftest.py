"""One thread for everything: the tests' arrays are too small to share among cores."""

import torch

torch.set_num_threads(1)
