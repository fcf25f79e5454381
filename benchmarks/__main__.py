"""``python -m benchmarks NAME``: run one of the measurements of this folder."""

from __future__ import annotations

import argparse
import importlib
import sys

NAMES = {
    "step": "the time of an optimizer's step, without the gradients, and its memory",
    "quality": "AutoGrouping beside tuned and tuning-free rivals, on fifteen convex problems",
    "robustness": "what AutoGrouping is indifferent to, and whether it ever blows up",
    "mlp": "AutoGrouping and Adam on a small network",
    "ablation": "what each ingredient of AutoGrouping is worth, and constants that are 3× off",
    "sweep": "the runs of a learning-rate sweep as stacks, beside a plain loop over torch.optim",
    "quadratics": "what each rule of the safeguard does, on quadratic functions",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measurements, side by side in one run.",
        epilog="\n".join(f"{name}: {what}" for name, what in NAMES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=NAMES)
    chosen, rest = parser.parse_known_args()
    run = importlib.import_module(f"benchmarks.{chosen.name}").main
    return int(run(rest))


if __name__ == "__main__":
    sys.exit(main())
