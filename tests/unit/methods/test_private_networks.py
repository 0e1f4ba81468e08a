"""Jobs with differential privacy: networks of any making are tried before round 1, where that is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from fedsilo.api.common import Metadata
from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.errors import MethodError
from fedsilo.simulation.simulate import open_simulation
from tests.federate import job_spec, runners, skewed_silos
from tests.unit.learning.odd_networks import Apply


def centred_network(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A factory of a network that takes the batch's mean off."""
    return nn.Sequential(nn.Linear(input_shape[0], 5), Apply(lambda x: x - x.mean(0)), nn.Linear(5, classes))


def spec_of(unit: str | None, **sections: Any) -> FederatedJobSpec:
    given: dict[str, Any] = {}
    if unit is not None:
        given = {"unit": unit, "noiseMultiplier": 1.0, "delta": 1e-3}
    if unit == "silo":
        given |= {"maxUpdateNorm": 1.0}
    privacy = {"differentialPrivacy": given} if given else {}
    return job_spec("fedavg", ["a", "b"], training={"batchSize": 6}, privacy=privacy, **sections)


CENTRED_NETWORK = {"name": f"python:{__name__}:centred_network", "config": {}}


def test_a_network_that_mixes_is_refused_where_the_runner_is_made(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    with pytest.raises(MethodError, match=r"spec\.privacy\.differentialPrivacy: module 1 \(Apply\)"):
        runners(spec_of("example", model=CENTRED_NETWORK), silos, tmp_path)


@pytest.mark.parametrize("unit", ["silo", None])
def test_it_trains_where_no_example_needs_a_gradient_of_its_own(tmp_path: Path, unit: str | None) -> None:
    assert runners(
        spec_of(unit, model=CENTRED_NETWORK), skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]}), tmp_path
    )


def test_a_simulation_tries_its_network_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedsilo.learning import company

    tried, require = list[nn.Module](), company.require_apart

    def record_model(model: nn.Module, *given: Any) -> None:
        tried.append(model)
        require(model, *given)

    monkeypatch.setattr(company, "require_apart", record_model)
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    spec, test = spec_of("example"), silos[0].spec.datasets[0].model_copy(update={"name": "test"})
    spec = spec.model_copy(
        update={
            "evaluation": spec.evaluation.model_copy(update={"test_dataset": "test"}),
            "aggregator": spec.aggregator.model_copy(update={"datasets": (test,)}),
        }
    )
    job = FederatedJob(metadata=Metadata(name="job", namespace="jobs"), spec=spec)
    open_simulation(JobManifest("job.yaml", job, tuple(silos)), tmp_path, tmp_path / "job").close()
    assert len(tried) == 1
