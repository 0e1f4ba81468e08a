"""docs/parameters.md: its programs, as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.local.runs import ENVIRONMENT
from tests.pages import blocks

PAGE = "docs/parameters.md"

FACTORIES = """
import torch
from fedsilo.api.data import DataSpec
from fedsilo.api.job import ModelSpec
from fedsilo.learning.models import build_model

for name, shape in {"timm_network": [3, 32, 32], "monai_network": [1, 32, 32]}.items():
    data = DataSpec.model_validate({"dataset": "scans", "classes": 3, "inputShape": shape})
    model = build_model(ModelSpec(name=f"python:hospital:{name}"), data, seed=0)
    print(name, tuple(model(torch.zeros(2, *shape)).shape))
"""


def test_adapters_travel_alone_and_networks_of_other_packages_are_models(tmp_path: Path) -> None:
    for code in blocks(PAGE, "python"):
        name = re.match(r'"""(\w+\.py): ', code)
        assert name is not None, "the first line of a program names its file"
        (tmp_path / name[1]).write_text(code)
    (tmp_path / "factories.py").write_text(FACTORIES)
    (tmp_path / "all.py").write_text(
        "import adapters, factories\n"
    )  # one process: imports take most of the time
    done = subprocess.run(
        [sys.executable, "all.py"],
        cwd=tmp_path,
        env=ENVIRONMENT | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout
    found = re.findall(r"^(\w+): accuracy (0\.\d+), an update of ([\d,]+) bytes$", said, re.MULTILINE)
    accuracy = {name: float(value) for name, value, _ in found}
    sent = {name: int(size.replace(",", "")) for name, _, size in found}
    assert sent["adapters"] <= 0.05 * sent["full"]
    assert accuracy["adapters"] > accuracy["base"] + 0.03, (
        "they have learned from silos that base had not seen"
    )
    assert accuracy["adapters"] > accuracy["full"] - 0.1
    assert "PEFT loads the adapter: True" in said
    assert "timm_network (2, 3)" in said and "monai_network (2, 3)" in said
