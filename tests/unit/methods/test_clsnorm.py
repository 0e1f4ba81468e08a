"""With clsnorm, what silos train is what the job yields, and sizes of class weights decide nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsilo.learning.models import Model
from fedsilo.methods.clsnorm import normalised_loss
from tests.federate import federate, job_spec, model_of, runners, skewed_silos


@pytest.mark.parametrize("bias", [True, False])
def test_the_size_of_a_class_weight_does_not_matter(bias: bool) -> None:
    torch.manual_seed(0)
    model = Model(nn.Linear(6, 5), nn.Linear(5, 4, bias=bias))
    x, y = torch.rand(3, 6), torch.tensor([0, 1, 3])
    before = normalised_loss(model, x, y)
    with torch.no_grad():
        model.classifier.weight *= torch.tensor([[0.1], [1], [10], [3]])
    torch.testing.assert_close(normalised_loss(model, x, y), before)
    with torch.no_grad():
        model.classifier.weight /= model.classifier.weight.norm(dim=1, keepdim=True)
    torch.testing.assert_close(functional.cross_entropy(model(x), y), before)


def test_class_weights_of_the_yielded_model_have_norm_one(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    spec = job_spec("clsnorm", ["a", "b"], 2)
    engine = federate(tmp_path / "job", spec, runners(spec, silos, tmp_path))
    found, averaged = model_of(engine), engine.state.tree("model")
    np.testing.assert_allclose(np.linalg.norm(found["classifier.weight"], axis=1), 1, rtol=1e-6)
    for name, array in averaged.items():
        assert np.array_equal(found[name], array) == (name != "classifier.weight"), name


def test_a_class_weight_of_zero_stays_finite(tmp_path: Path) -> None:
    model = Model(nn.Linear(6, 5), nn.Linear(5, 4))
    nn.init.zeros_(model.classifier.weight)
    loss = normalised_loss(model, torch.rand(3, 6), torch.tensor([0, 1, 3]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
