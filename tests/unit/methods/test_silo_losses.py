"""Losses that only change what a silo minimises, fedmmd, feddecorr and fed-focal, against the released codes."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.learning.models import Model
from fedsilo.methods.fed_focal import focal_loss
from fedsilo.methods.feddecorr import FedDecorrConfig, decorrelating_loss
from tests import reference_numbers
from tests.federate import federate, job_spec, model_of, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    as_recorded,
    assert_close,
)


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_every_round_of_fedmmd_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_fedmmd")
    config = {"discrepancyWeight": float(npz["arg/reg_lamb"])}
    engine = as_recorded(tmp_path, "fedmmd", "map_fedmmd", rounds, config)
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/g/"))


def undecided_model(features: int = 5) -> Model:
    """A network whose features are its inputs and whose logits are all zero: its cross-entropy is log C, and flat."""
    model = Model(nn.Identity(), nn.Linear(features, 4))
    for parameter in model.classifier.parameters():
        nn.init.zeros_(parameter)
    return model


def decorrelation_of(tmp_path: Path, z: torch.Tensor, variant: str, beta: float = 1.0) -> torch.Tensor:
    """What the silo's loss has beside the cross-entropy."""
    (silo,) = runners(job_spec("feddecorr", ["a"]), skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    config = FedDecorrConfig.model_validate({"variant": variant, "beta": beta})
    loss = decorrelating_loss(silo.context, config)
    return loss(undecided_model(z.shape[1]), z, torch.zeros(len(z), dtype=torch.int64)) - log(4)


@pytest.mark.parametrize(("variant", "prefix"), [("released", ""), ("fedbr", "fedbr_variant_")])
def test_decorrelation_and_its_gradient_are_those_of_the_released_codes(
    tmp_path: Path, variant: str, prefix: str
) -> None:
    npz = reference_numbers.load("feddecorr")
    z = torch.tensor(npz["z"], requires_grad=True)
    value = decorrelation_of(tmp_path, z, variant)
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(float(npz[prefix + "loss"]), rel=2e-5)
    assert z.grad is not None
    np.testing.assert_allclose(z.grad.numpy(), npz[prefix + "grad"], rtol=1e-4, atol=1e-6)


def test_the_printed_decorrelation_is_of_the_correlation_matrix(tmp_path: Path) -> None:
    z = reference_numbers.load("feddecorr")["z"]
    wanted = np.square(np.corrcoef(z.astype(np.float64), rowvar=False)).sum() / z.shape[1] ** 2
    assert decorrelation_of(tmp_path, torch.tensor(z), "paper").item() == pytest.approx(wanted, rel=1e-5)
    assert decorrelation_of(tmp_path, torch.tensor(z), "paper", 0.3).item() == pytest.approx(
        0.3 * wanted, 1e-5
    )


@pytest.mark.parametrize("variant", ["paper", "released", "fedbr"])
@pytest.mark.parametrize("z", [torch.zeros(6, 5), torch.ones(1, 5), torch.eye(2, 1)])
def test_constant_features_and_single_examples_have_a_finite_gradient(
    tmp_path: Path, variant: str, z: torch.Tensor
) -> None:
    z.requires_grad_()
    decorrelation_of(tmp_path, z, variant).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_the_focal_loss_and_its_gradient_are_those_of_the_released_code() -> None:
    npz = reference_numbers.load("longtail_losses")
    logits = torch.tensor(npz["logits"], requires_grad=True)
    value = focal_loss(float(npz["focal_gamma"]))(nn.Identity(), logits, torch.tensor(npz["y"]))
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(float(npz["focal_loss"]), rel=2e-5)
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), npz["focal_grad"], rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_an_example_that_is_predicted_for_certain_or_never_has_a_finite_gradient(gamma: float) -> None:
    logits = torch.tensor([[200.0, 0, 0], [-200.0, 0, 0]], requires_grad=True)
    focal_loss(gamma)(nn.Identity(), logits, torch.tensor([0, 0])).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert not logits.grad[0].any()


def trained_model(tmp_path: Path, method: str, config: dict[str, Any] | None = None) -> dict[str, np.ndarray]:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    optimizer = {"learningRate": 0.1, "momentum": 0}
    training = {"rounds": 2, "device": "cpu", "minSteps": 6, "optimizer": optimizer}
    spec = job_spec(method, ["a", "b"], 2, method={"config": config or {}}, training=training)
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    return model_of(federate(directory, spec, runners(spec, silos, tmp_path)))


@pytest.mark.parametrize(
    ("method", "field"), [("fedmmd", "discrepancyWeight"), ("feddecorr", "beta"), ("fed-focal", "gamma")]
)
def test_without_weight_it_is_fedavg_and_with_weight_it_is_not(
    tmp_path: Path, method: str, field: str
) -> None:
    fedavg, same, other = (
        trained_model(tmp_path, *job) for job in (("fedavg",), (method, {field: 0}), (method, {field: 5}))
    )
    for name, array in fedavg.items():
        np.testing.assert_allclose(same[name], array, rtol=1e-5, atol=1e-6)
        assert not np.allclose(other[name], array, rtol=1e-3, atol=0)
