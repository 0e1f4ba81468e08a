"""FedAvg jobs against numbers that the released codes produced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedsilo.learning.models import build_model, to_tree
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State
from tests import reference_numbers
from tests.federate import federate, job_spec, model_of, runners, silo_holding
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import as_recorded, assert_close

ROUNDS = (1, 2, 3)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize(("fixture", "prefix"), [("niid_fedavg", "round{}/"), ("map_fedavg", "round{}/g/")])
def test_every_round_is_that_of_the_released_code(
    tmp_path: Path, fixture: str, prefix: str, rounds: int
) -> None:
    engine = as_recorded(tmp_path, "fedavg", fixture, rounds)
    assert_close(model_of(engine), fixture_tree(reference_numbers.load(fixture), prefix.format(rounds)))


@pytest.mark.parametrize("rounds", ROUNDS)
def test_partial_participation_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    fixture = "feddynrepo_fedavg_partial"
    npz = reference_numbers.load(fixture)
    engine = as_recorded(tmp_path, "fedavg", fixture, rounds)
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/sel/"))
    for line, selected in zip(engine.history(), npz["selected"], strict=False):
        assert line["samples"] == {
            f"silos/c{k}": int(npz["sizes"][k]) for k in np.flatnonzero(selected).tolist()
        }


def test_statistics_of_batchnorm_are_averaged_like_weights_and_their_count_is_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    silos = [
        silo_holding(tmp_path, name, rng.random((n, 1, 8, 8), np.float32), rng.integers(0, 4, n))
        for name, n in (("a", 12), ("b", 6))
    ]
    spec = job_spec(
        "fedavg",
        ["a", "b"],
        model={"name": "resnet8", "config": {"width": 1}},
        data={"inputShape": [1, 8, 8]},
        training={"rounds": 1, "device": "cpu", "batchSize": 4},
    )
    answering = runners(spec, silos, tmp_path)
    found = model_of(federate(tmp_path / "job", spec, answering))
    initial = to_tree(build_model(spec.model, spec.data, derive_seed(spec.training.seed, "model")))
    task = SiloTask("train", "train", 1, 1, 1, {"model": initial}, {})
    a, b = (runner.run(task, State()).tensors for runner in answering.values())
    for name, array in found.items():
        if name.endswith("num_batches_tracked"):
            assert [int(count) for count in (a[name], b[name], array)] == [
                3,
                2,
                2,
            ]  # (12 * 3 + 6 * 2) / 18 is 2.67
        else:
            np.testing.assert_allclose(array, (12 * a[name] + 6 * b[name]) / 18, rtol=1e-5, atol=1e-7)
