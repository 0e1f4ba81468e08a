"""Local training by DP-SGD: each example's gradient clipped, noise of the stated deviation, batches that are Poisson
samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model
from fedsilo.learning.noise import KEY_BYTES, NoiseSource
from fedsilo.learning.private_training import ExamplePrivacy, fit_privately
from fedsilo.learning.training import LocalTraining, cross_entropy_loss
from fedsilo.privacy.mechanism import Mechanism

PLAN = LocalTraining(lr=1.0, batch_size=8, max_steps=1)


def examples_of(n: int, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(n, 1, 8, 8)).astype(np.float32)
    return Examples.from_arrays(images, rng.integers(0, 3, n), "cpu")


def network() -> Model:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten())
    return Model(encoder, nn.Linear(144, 3))


def weights(model: nn.Module) -> np.ndarray:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).double().numpy()


def without_noise(norm: float, sampling: float = 1.0, times: int = 1) -> ExamplePrivacy:
    return ExamplePrivacy(Mechanism(1e-12, sampling, times), norm, np.random.default_rng(0))


def single_gradients(model: Model, examples: Examples) -> np.ndarray:
    """(n, parameters) by a backward pass for each example."""
    rows = []
    for place in range(len(examples)):
        model.zero_grad()
        torch.autograd.backward(cross_entropy_loss(model, *examples.batch(torch.tensor([place]))))
        rows.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    model.zero_grad()
    return torch.stack(rows).double().numpy()


def test_a_step_is_the_sum_of_clipped_gradients_over_the_batch() -> None:
    model, examples = network(), examples_of(8)
    single = single_gradients(model, examples)
    lengths = np.linalg.norm(single, axis=1)
    norm = float(np.median(lengths))  # so that some are clipped and some are not
    expected = weights(model) - (single * np.minimum(1, norm / lengths)[:, None]).sum(axis=0) / 8
    # Of 8 examples and batches of 8 every one is in the sample.
    report = fit_privately(model, examples, PLAN, without_noise(norm), cross_entropy_loss)
    assert weights(model) == pytest.approx(expected, abs=1e-5)
    assert report.steps == 1


def test_one_huge_example_moves_the_model_by_no_more_than_the_norm() -> None:
    examples = examples_of(8)
    pool = examples.features.clone()
    pool[3] *= 1e6
    huge = Examples(pool, examples.labels)
    plain = Model(nn.Flatten(), nn.Linear(64, 3))
    before = weights(plain)
    fit_privately(plain, huge, PLAN, without_noise(0.5), cross_entropy_loss)
    assert np.linalg.norm(weights(plain) - before) <= 8 * 0.5 / 8 + 1e-6


def test_an_example_without_a_finite_gradient_counts_for_nothing() -> None:
    examples = examples_of(8)
    pool = examples.features.clone()
    pool[3] = 3e38
    model = Model(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(MethodError, match="diverged"):
        fit_privately(model, Examples(pool * 10, examples.labels), PLAN, without_noise(1), cross_entropy_loss)
    assert np.isfinite(weights(model)).all()


def test_the_noise_has_the_stated_deviation() -> None:
    """Where every gradient is zero the steps are the noise alone: deviation lr sigma C / B."""

    def zero_loss(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        found: Tensor = (model(features) * 0).sum()
        return found

    rng, found = np.random.default_rng(1), []
    for _ in range(30):
        model = Model(nn.Flatten(), nn.Linear(64, 30))
        before = weights(model)
        fit_privately(
            model, examples_of(40), PLAN, ExamplePrivacy(Mechanism(1.5, 8 / 40), 2.0, rng), zero_loss
        )
        found.append(weights(model) - before)
    noise = np.concatenate(found)
    assert noise.mean() == pytest.approx(0, abs=0.01)
    # Of 58,500 draws the deviation is known to 0.3 %.
    assert noise.std() == pytest.approx(1.5 * 2.0 / 8, rel=0.015)


def test_batches_are_poisson_samples() -> None:
    """Each example is in each batch with probability B / n, so that a batch's size varies as a binomial does."""
    sizes: list[int] = []

    def counting(model: nn.Module, features: Tensor, labels: Tensor) -> Tensor:
        sizes.append(len(labels))
        return cross_entropy_loss(model, features, labels)  # type: ignore[arg-type]

    plan = replace(PLAN, batch_size=20, max_steps=None, min_steps=400, lr=1e-6)
    model = Model(nn.Flatten(), nn.Linear(64, 3))
    privacy = ExamplePrivacy(Mechanism(1, 20 / 200, 400), 1, np.random.default_rng(2))
    fit_privately(model, examples_of(200), plan, privacy, counting)
    # Parts of a batch are at most a quarter more than 20 examples: together they are the batches' examples.
    assert sum(sizes) / 400 == pytest.approx(20, rel=0.05)
    assert 20 < max(sizes) <= 25
    assert len(sizes) < 1.25 * 400  # few samples need two parts


def test_an_empty_sample_is_a_step_of_noise() -> None:
    class Nobody:
        def random(self, n: int) -> np.ndarray:
            return np.ones(n)

        def bytes(self, n: int) -> object:
            return b"k" * n

    model = Model(nn.Flatten(), nn.Linear(64, 3))
    before = weights(model)
    (noise,) = NoiseSource(b"k" * KEY_BYTES, 4).pieces(len(before))
    privacy = ExamplePrivacy(Mechanism(4, 8 / 40), 1, Nobody())  # type: ignore[arg-type]
    report = fit_privately(model, examples_of(40), PLAN, privacy, cross_entropy_loss)
    assert weights(model) == pytest.approx(before - noise.numpy() / 8, abs=1e-6)
    assert report.loss == 0


def test_the_network_is_left_as_it_was() -> None:
    model = network()
    fit_privately(model, examples_of(8), PLAN, without_noise(1), cross_entropy_loss)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(hasattr(parameter, "grad_sample") for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
