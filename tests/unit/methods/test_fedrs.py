"""FedRS against the released code, and its scales against the equations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from fedsilo.api.faults import ManifestFaults
from fedsilo.learning.models import Model
from fedsilo.methods.components.restricted_softmax import class_scales, restricted_loss
from fedsilo.methods.state import Tree
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    as_recorded,
    assert_close,
)

SAMPLES = {"weights": "samples"}


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_the_released_form_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_fedrs")
    config = {"variant": "released", "alpha": float(npz["arg/alpha"])}
    engine = as_recorded(tmp_path, "fedrs", "map_fedrs", rounds, config, aggregation=SAMPLES)
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/g/"))


def test_the_scales_are_those_of_the_equations() -> None:
    counts = np.array([6, 0, 3, 0])
    np.testing.assert_allclose(class_scales(counts, 0.5, "mask"), [1, 0.5, 1, 0.5])
    np.testing.assert_allclose(class_scales(counts, 0.5, "frequency"), [1, 0.5, 0.75, 0.5])
    np.testing.assert_allclose(class_scales(counts, 0.5, "share"), [2 / 3, 0, 1 / 3, 0], rtol=1e-6)


@given(
    counts=st.lists(st.integers(0, 50), min_size=2, max_size=8).filter(any),
    alpha=st.floats(0, 1),
)
def test_a_scale_never_leaves_its_range(counts: list[int], alpha: float) -> None:
    held = np.array(counts)
    mask, frequency = (class_scales(held, alpha, rule) for rule in ("mask", "frequency"))
    assert (mask[held > 0] == 1).all()
    assert (mask[held == 0] == np.float32(alpha)).all()
    assert ((np.float32(alpha) <= frequency * (1 + 1e-6)) & (frequency <= 1)).all()
    assert class_scales(held, alpha, "share").sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_the_whole_logit_is_scaled_and_a_missing_class_moves_less(tmp_path: Path, bias: bool) -> None:
    (silo,) = runners(job_spec("fedrs", ["a"]), skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    model = Model(nn.Linear(6, 5), nn.Linear(5, 4, bias=bias))
    x, y = silo.context.train.batch(torch.arange(8))
    scales = class_scales(np.array([12, 12, 0, 0]), 0.5, "mask")
    found = restricted_loss(silo.context, scales)(model, x, y)
    wanted = functional.cross_entropy(torch.tensor([1, 1, 0.5, 0.5]) * model(x), y)
    assert torch.equal(found, wanted)


def test_a_scale_of_one_is_fedavg_and_zero_keeps_the_weights_of_missing_classes(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [0, 1]})

    def trained_model(method: str, rounds: int, **config: float) -> Tree:
        spec = job_spec(method, ["a", "b"], rounds, method={"config": config})
        return model_of(
            federate(tmp_path / str(len(list(tmp_path.iterdir()))), spec, runners(spec, silos, tmp_path))
        )

    fedavg, same = trained_model("fedavg", 2), trained_model("fedrs", 2, alpha=1)
    for name, array in fedavg.items():
        np.testing.assert_array_equal(same[name], array)
    one, two = (trained_model("fedrs", rounds, alpha=0)["classifier.weight"] for rounds in (1, 2))
    np.testing.assert_array_equal(one[2:], two[2:])
    assert not np.array_equal(one[:2], two[:2])
    assert not np.array_equal(fedavg["classifier.weight"][2:], one[2:])


@pytest.mark.parametrize(
    ("method", "config", "weight_decay", "stays"),
    [
        ("fedavg", {}, 0, False),
        ("fedrs", {}, 0, False),  # at the default of 0.9
        ("fedrs", {"alpha": 0.1}, 0, False),
        ("fedrs", {"alpha": 0}, 0, True),
        ("fedrs", {"variant": "complete"}, 0, True),
        ("fedrs", {"alpha": 0}, 0.1, False),
        ("map", {}, 0, False),
        ("map", {"alpha": 0}, 0, True),
        ("map", {"variant": "complete"}, 0, True),
        ("scamap", {}, 0, False),
        ("fedlc", {}, 0, True),
        ("fedlc", {}, 0.1, False),
    ],
)
def test_a_class_that_no_silo_has_is_left_alone_only_where_its_logit_takes_no_part(
    tmp_path: Path, method: str, config: dict[str, Any], weight_decay: float, stays: bool
) -> None:
    """What the method's page says of missing data: its row of the classifier is as before training, or it is not."""
    optimizer = {"learningRate": 0.1, "weightDecay": weight_decay}
    training = {"rounds": 1, "device": "cpu", "minSteps": 4, "optimizer": optimizer}
    spec = job_spec(method, ["a"], 1, method={"config": config}, training=training)
    answering = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path)
    start = answering["silos/a"].context.initial_model()
    found = model_of(federate(tmp_path, spec, answering))
    for name in ("classifier.weight", "classifier.bias"):
        assert np.array_equal(found[name][2:], start[name][2:]) == stays, name
        assert not np.array_equal(found[name][:2], start[name][:2]), name


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), "half"])
def test_a_scale_out_of_range_is_refused(alpha: object) -> None:
    with pytest.raises(ManifestFaults, match=r"spec\.method\.config\.alpha"):
        bound_method("fedrs", config={"alpha": alpha})
