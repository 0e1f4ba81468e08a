"""FedBE against the released code: its samples and targets, and stochastic weight averaging."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.learning.distilling import Distillation, distil
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model
from fedsilo.learning.transfer import divergence
from fedsilo.methods.fedbe.config import FedBEConfig
from fedsilo.methods.fedbe.distribution import VARIANCE_SCALE, GaussianDistribution
from fedsilo.methods.fedbe.server import FedBEServer, combined_model
from tests import reference_numbers
from tests.unit.methods.harness import answers, assert_close

TENSORS = ("a", "b")


def part(prefix: str) -> dict[str, np.ndarray]:
    npz = reference_numbers.load("fedbe")
    return {name: npz[f"{prefix}/{name}"] for name in TENSORS}


CLIENTS = [part(f"client{k}") for k in range(3)]


def test_a_sample_is_that_of_the_released_code() -> None:
    npz = reference_numbers.load("fedbe")
    assert float(npz["var_scale"]) == VARIANCE_SCALE
    found = GaussianDistribution.of(part("base"), CLIENTS)
    assert_close({name: found.moments[name].mean for name in TENSORS}, part("mean"))
    assert_close({name: found.moments[name].variance for name in TENSORS}, part("var"))
    assert_close({name: np.array(found.moments[name].norm) for name in TENSORS}, part("norm"))
    noise = part("eps")
    assert_close(found.sample(lambda name, shape: noise[name].reshape(shape)), part("gauss_sample"))


def test_a_combination_is_that_of_the_released_code() -> None:
    npz = reference_numbers.load("fedbe")
    sent = {f"silos/{k}": {"model": client} for k, client in enumerate(CLIENTS)}
    assert_close(combined_model(answers(sent), npz["dir_weights"]), part("dir_sample"))


def test_the_target_is_that_of_the_released_code() -> None:
    npz = reference_numbers.load("fedbe")
    half = FedBEServer(FedBEConfig(temperature=float(npz["temp"])))
    found = half.sharpened_probabilities(torch.tensor(npz["probs"])).numpy()
    assert_close({"p": found}, {"p": npz["sharpened"]})


@pytest.mark.parametrize("distribution", ["gaussian", "dirichlet"])
def test_teachers_are_samples_silos_and_the_average_with_its_statistics(distribution: str) -> None:
    half = FedBEServer(FedBEConfig.model_validate({"distribution": distribution, "samples": 4}))
    models = [
        {"w": np.full(3, value, np.float32), "n.running_var": np.full(2, value, np.float32)}
        for value in (1.0, 3.0)
    ]
    average = {"w": np.full(3, 2, np.float32), "n.running_var": np.full(2, 2, np.float32)}
    updates = answers({f"silos/{k}": {"model": model} for k, model in enumerate(models)})
    base = {"w": np.zeros(3, np.float32), "n.running_var": np.ones(2, np.float32)}
    *samples, first, second, last = half.teachers(base, average, updates, np.random.default_rng(1))
    assert len(samples) == 4
    assert [tree["w"][0] for tree in (first, second, last)] == [1, 3, 2]
    for sample in samples:
        assert np.array_equal(sample["n.running_var"], average["n.running_var"])
        assert sample["w"].dtype == np.float32
        assert np.abs(sample["w"] - 2).max() < 1.01
    assert len({float(sample["w"][0]) for sample in samples}) == 4


def test_silos_that_changed_nothing_are_their_own_samples() -> None:
    base = {"w": np.ones(3, np.float32)}
    found = GaussianDistribution.of(base, [base, base]).sample(lambda _name, shape: np.ones(shape))
    assert np.array_equal(found["w"], base["w"])


def test_weights_are_averaged_from_the_first_step_on_and_otherwise_stay_the_last() -> None:
    """Step by step with PyTorch's own optimiser."""
    torch.manual_seed(0)
    features, targets = torch.randn(8, 6), torch.randn(8, 4).softmax(dim=1)
    examples = Examples(features, torch.zeros(8, dtype=torch.int64))
    start = Model(nn.Flatten(), nn.Linear(6, 4)).state_dict()

    def fresh_model() -> Model:
        model = Model(nn.Flatten(), nn.Linear(6, 4))
        model.load_state_dict(start)
        return model

    plain = fresh_model()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9, weight_decay=1e-2)
    passed = []
    for _ in range(7):
        optimizer.zero_grad()
        torch.autograd.backward(divergence(targets, plain(features)))
        optimizer.step()
        passed.append(plain.classifier.weight.detach().clone())
    for averaging, wanted in (((2, 2), (passed[3] + passed[5]) / 2), ((500, 25), passed[6])):
        model = fresh_model()
        plan = Distillation(
            optimizer="sgd",
            lr=0.1,
            momentum=0.9,
            weight_decay=1e-2,
            steps=7,
            batch_size=8,
            seed=1,
            averaging=averaging,
        )
        distil(model, examples, targets, plan)
        assert torch.allclose(model.classifier.weight, wanted, atol=1e-6)
