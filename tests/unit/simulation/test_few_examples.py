"""Federations of the smallest kind: every method ends with finite figures, or says what to change before it begins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from fedsilo.api.common import Metadata
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.errors import SiloFailed
from fedsilo.methods import registry
from fedsilo.simulation.job import Simulation
from fedsilo.simulation.simulate import simulate
from fedsilo.validation import registry_faults
from tests.federate import silo_holding
from tests.tiers import mark_thorough
from tests.unit.methods.forms import FIRST_FORMS, form_spec

PARTS = {
    "one silo": [[0, 1, 2, 3] * 3],
    "one class each": [[0] * 6, [1] * 6, [2] * 6],
    "two examples": [[0, 1, 2, 3] * 3, [1, 3]],
}
"""Labels of the silos' examples; in the second nobody has class 3."""


def manifest(directory: Path, form: str, parts: list[list[int]], **sections: Any) -> JobManifest:
    """A job whose silos score the model, their own where they have one, on examples that they set aside."""
    rng = np.random.default_rng(0)
    silos = []
    for number, part in enumerate(parts):
        features = (rng.normal(0, 0.3, (len(part), 6)) + np.eye(6)[part]).astype(np.float32)
        silos.append(silo_holding(directory, f"s{number}", features, np.array(part)))
    names = [silo.metadata.name for silo in silos]
    spec = form_spec(form, names, data={"validationFraction": 0.25}, evaluation={"every": 1}, **sections)
    job = FederatedJob(metadata=Metadata(name="few", namespace="jobs"), spec=spec)
    return JobManifest("job.yaml", job, tuple(silos))


def figures(simulation: Simulation) -> list[float]:
    """All that the history says, of the models and of training."""
    lines = simulation.history()
    assert lines
    named = [{**line["training"], **line.get("metrics", {})} for line in lines]
    return [value for figures in named for value in figures.values() if value is not None]


@pytest.mark.parametrize("parts", mark_thorough(PARTS, {"two examples"}))
@pytest.mark.parametrize("method", registry.names())
def test_every_method_ends_with_finite_figures_or_names_what_to_change(
    tmp_path: Path, method: str, parts: str
) -> None:
    job = manifest(tmp_path, FIRST_FORMS[method], PARTS[parts])
    if faults := registry_faults(job):
        assert parts == "one silo"
        assert [(fault.path, fault.remedy) for fault in faults] == [
            ("spec.method.config.clusters", "use 1 or less")
        ]
        return
    simulation = simulate(job, tmp_path, tmp_path / "run")
    assert all(math.isfinite(value) for value in figures(simulation))


def test_an_example_that_batch_norm_cannot_learn_from_names_the_silo_and_the_remedy(tmp_path: Path) -> None:
    network = {"name": f"python:{__name__}:normalised_network", "config": {}}
    job = manifest(tmp_path, "fedavg", [[0, 1, 2, 3] * 3, [3, 3]], model=network)
    with pytest.raises(
        SiloFailed, match=r"silo silos/s1: .*examples: 1 .*: give this silo 2 training examples"
    ):
        simulate(job, tmp_path, tmp_path / "run")


def normalised_network(input_shape: tuple[int, ...], classes: int) -> Any:
    """A network with BatchNorm."""
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(input_shape[0], 5), nn.BatchNorm1d(5), nn.ReLU())
            self.classifier = nn.Linear(5, classes)

        @override
        def forward(self, x: Any) -> Any:
            return self.classifier(self.encoder(x))

    return Network()
