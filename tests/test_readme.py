"""The README's code runs as it stands, from top to bottom, and names what is there."""

import re
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_code_runs_and_trains() -> None:
    pasted: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, pasted)
        if "loader" in pasted and "opt" in pasted:
            data, targets = pasted["loader"].dataset.tensors
            with torch.no_grad():
                assert pasted["loss_fn"](pasted["model"](data), targets) < 0.5


def test_the_make_targets_are_there() -> None:
    rules = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"\$ make (\w+)", "".join(blocks("console")))
    assert named
    assert set(named) <= set(rules)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    files = [link for link in links if not link.startswith("http")]
    assert files
    assert [link for link in files if not (ROOT / link).exists()] == []
