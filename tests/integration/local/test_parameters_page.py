"""The programs of docs/parameters.md and docs/guides/adapters.md, as a reader would run them."""

from __future__ import annotations

import hashlib
import re

import pytest

from tests import warm
from tests.integration.local.runs import ENVIRONMENT
from tests.pages import blocks, runs
from tests.terminal import Terminal

PAGES = ("docs/parameters.md", "docs/guides/adapters.md")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(900),
]  # all programs of two pages, and a run in processes

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


@runs("docs/guides/adapters.md")
def test_adapters_travel_alone_and_networks_of_other_packages_are_models(terminal: Terminal) -> None:
    folder = terminal.folder
    for code in (code for page in PAGES for code in blocks(page, "python")):
        name = re.match(r'"""(\w+\.py): ', code)
        assert name is not None, "the first line of a program names its file"
        (folder / name[1]).write_text(code)
    (folder / "factories.py").write_text(FACTORIES)
    (folder / "all.py").write_text(
        "import adapters, factories, language\nlanguage.main()\n"
    )  # one process: imports take most of the time
    environment = ENVIRONMENT | {"HF_HUB_OFFLINE": "1"}
    done = warm.run("tests.warm.script", ["all.py"], cwd=folder, env=environment)
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
    found = re.findall(r"^([a-z-]+): perplexity ([\d.]+), an update of ([\d,]+) bytes$", said, re.MULTILINE)
    perplexity = {name: float(value) for name, value, _ in found}
    sent = {name: int(size.replace(",", "")) for name, _, size in found}
    assert sent["text-adapters"] <= 0.05 * sent["text-full"]
    assert perplexity["text-full"] < perplexity["text-adapters"] < perplexity["text"] - 1
    assert "timm_network (2, 3)" in said and "monai_network (2, 3)" in said
    terminal.environment["HF_HUB_OFFLINE"] = "1"
    terminal.type("fedsilo run -f adapters.yaml --workdir runs/processes")
    models = [folder / "runs" / way / "model.safetensors" for way in ("adapters", "processes")]
    assert models[0].read_bytes() == models[1].read_bytes()
    digest = hashlib.sha256((folder / "start.safetensors").read_bytes()).hexdigest()
    for silo in ("s1", "s2"):
        held = (folder / "runs" / "processes" / "silos" / silo / "inbox" / "blobs" / digest).read_bytes()
        assert hashlib.sha256(held).hexdigest() == digest, (
            "what is frozen is the same in every silo at the end"
        )
