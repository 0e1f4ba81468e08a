"""FedLC's loss against those of the codes in circulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typing_extensions import override

from fedsilo.learning.models import Model
from fedsilo.methods.components.restricted_softmax import shifted_loss
from fedsilo.methods.fedlc import FedLCConfig, margins
from tests import reference_numbers
from tests.federate import federate, job_spec, model_of, runners, skewed_silos


class FixedLogits(Model):
    """Answers with the logits that it is asked about."""

    def __init__(self) -> None:
        super().__init__(nn.Identity(), nn.Linear(4, 4))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.parametrize(("variant", "recorded"), [("released", "flbench"), ("paper", "feddecorr")])
def test_loss_and_gradient_are_those_of_the_released_codes(
    tmp_path: Path, variant: str, recorded: str
) -> None:
    npz = reference_numbers.load("fedlc")
    (silo,) = runners(job_spec("fedlc", ["a"]), skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    config = FedLCConfig.model_validate({"variant": variant, "tau": float(npz[f"{recorded}_tau"])})
    logits = torch.tensor(npz["logits"], requires_grad=True)
    loss = shifted_loss(silo.context, -margins(npz["counts"], config))
    value = loss(FixedLogits(), logits, torch.tensor(npz["y"]))
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(float(npz[f"{recorded}_loss"]), rel=2e-5)
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), npz[f"{recorded}_grad"], rtol=2e-5, atol=1e-7)
    # What the equation prints, without the label in the denominator, is something else.
    assert abs(value.item() - float(npz["paperform_loss"])) > 0.1


def test_margins_fall_with_the_count_and_a_missing_class_has_an_infinite_one() -> None:
    counts = np.array([16, 1, 0])
    np.testing.assert_allclose(margins(counts, FedLCConfig(tau=2)), [1, 2, np.inf])
    released = FedLCConfig(variant="released")
    np.testing.assert_allclose(margins(counts, released), [0.5, 1, 100], rtol=1e-5)


def test_a_class_that_no_silo_has_keeps_its_weights(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [0]})
    models = []
    for rounds in (1, 2):
        spec = job_spec("fedlc", ["a", "b"], rounds)
        models.append(model_of(federate(tmp_path / str(rounds), spec, runners(spec, silos, tmp_path))))
    once, twice = (model["classifier.weight"] for model in models)
    np.testing.assert_array_equal(once[2:], twice[2:])
    assert not np.array_equal(once[0], twice[0])
