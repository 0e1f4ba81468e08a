"""FedAwS against the released penalty and rounds, and what spreading does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedsilo.methods.checks import check_task
from fedsilo.methods.fedaws import spreadout
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    as_recorded,
    assert_close,
)


def test_penalty_and_gradient_are_those_of_the_released_code() -> None:
    npz = reference_numbers.load("map_pieces")
    loss, gradient = spreadout(npz["spread_w"], float(npz["spread_margin"]))
    assert loss == pytest.approx(float(npz["spread_loss"]), rel=2e-5)
    assert_close({"w": gradient}, {"w": npz["spread_grad"]})


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
def test_every_round_is_that_of_the_released_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_fedaws")
    config = {
        "margin": float(npz["arg/margin"]),
        "steps": int(npz["arg/aws_steps"]),
        "spreadLearningRate": float(npz["arg/aws_lr"]),
    }
    engine = as_recorded(tmp_path, "fedaws", "map_fedaws", rounds, config)
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/g/"))


@pytest.mark.parametrize("margin", [0.2, 0.5, 1.0])
def test_the_gradient_is_that_of_the_penalty(margin: float) -> None:
    """By automatic differentiation over pairs of different classes; the pairs of a class with itself are constants."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(7, 4))
    w = torch.tensor(weight, requires_grad=True)
    pairs = [
        (margin - (1 - functional.cosine_similarity(w[i], w[j], dim=0)) / 2).clamp(min=0).square()
        for i in range(7)
        for j in range(7)
        if i != j
    ]
    penalty = torch.stack(pairs).sum() / 49
    (expected,) = torch.autograd.grad(penalty, [w])
    found, gradient = spreadout(weight, margin)
    np.testing.assert_allclose(found, penalty.item() + margin**2 / 7)
    np.testing.assert_allclose(gradient, expected.numpy(), atol=1e-12)


def test_classes_without_weights_and_of_the_same_weights_give_numbers() -> None:
    weight = np.array([[0, 0], [1, 2], [1, 2]], np.float32)
    loss, gradient = spreadout(weight, 0.9)
    assert np.isfinite(loss) and np.isfinite(gradient).all()
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient[1], gradient[2])
    np.testing.assert_array_equal(gradient[0], 0)


def test_silos_train_by_the_tasks_loss_with_its_class_weights() -> None:
    task = {"name": "classification", "config": {"classWeights": "balanced"}}
    assert check_task(bound_method("fedaws", task=task)) == []


def test_silos_of_one_class_each_end_with_classes_further_apart(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0], "b": [1], "c": [2], "d": [3]})
    nearest = []
    for method, config in (("fedavg", {}), ("fedaws", {"margin": 0.9, "spreadLearningRate": 1})):
        spec = job_spec(method, ["a", "b", "c", "d"], 3, method={"config": config})
        model = model_of(federate(tmp_path / method, spec, runners(spec, silos, tmp_path)))
        unit = functional.normalize(torch.tensor(model["classifier.weight"]), dim=1)
        nearest.append((unit @ unit.T - 2 * torch.eye(4)).max().item())
    assert nearest[1] < nearest[0] - 0.1
