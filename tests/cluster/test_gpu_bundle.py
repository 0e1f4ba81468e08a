"""The folder for a machine with a GPU and no network: it is made here, since package registries are asked for it.

No cluster is needed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.bundle import MOST_BYTES
from benchmarks.tables import layouts
from tests.pages import runs
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(600)


@runs("docs/gpu.md", "make gpu-bundle DATA=/data GPU_PYTHON=3.11", "build/gpu/run --quick")
def test_a_machine_without_a_network_runs_the_command(terminal: Terminal, tmp_path: Path) -> None:
    """On images that are made up, and on a CPU, with the cheapest of the parts."""
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    layouts.write_jpeg(
        tmp_path / "cifar10-jpeg.npz", dict.fromkeys(("train", "test"), (images, np.arange(20) % 10))
    )
    bundle, run = terminal.commands
    terminal.environment["CUDA_VISIBLE_DEVICES"] = ""
    said = terminal.type(bundle, {"/data": str(tmp_path)})
    made = terminal.folder / "build" / "gpu"
    megabytes = float(said.split()[-2])
    assert said.startswith("build/gpu: ") and 10 < megabytes <= MOST_BYTES / 1e6
    wheels = {path.name.partition("-")[0] for path in (made / "wheels").iterdir()}
    assert {"fedsilo", "pydantic", "cryptography", "opacus", "pytest", "hypothesis"} <= wheels
    assert not {"torch", "torchvision", "numpy", "scipy", "scikit_learn"} & wheels
    assert (made / "data" / "cifar10-jpeg.npz").exists()
    said = terminal.type(run, {"--quick": "--only private"})
    commit, _ = (made / "commit").read_text().split()
    assert f"reduced form, commit {commit}\n" in said and "lenet: steps 2, " in said
    assert (made / "site" / "pydantic").is_dir()
