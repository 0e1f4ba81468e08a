"""CReFF's feature optimisation and re-training against the released code's numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsilo.learning.linear import LinearTraining, train_classifier
from fedsilo.methods.creff.federated_features import match_features, matching_loss
from fedsilo.methods.creff.gradients import class_gradients
from tests import reference_numbers


def test_matching_loss_is_the_released_one() -> None:
    """The loss is asked directly: the recorded gradients are those of no features (a bias's add up to zero), so no job
    has them."""
    recorded = reference_numbers.load("creff_match_loss")
    found, wanted = (
        tuple(torch.tensor(recorded[f"g_{side}_{part}"])[None] for part in "wb") for side in ("syn", "real")
    )
    loss = matching_loss((found[0], found[1]), (wanted[0], wanted[1]), released=True)
    assert loss.item() == pytest.approx(recorded["loss"].item(), rel=2e-5)


def test_matching_loss_as_printed_is_the_mean_over_rows() -> None:
    rng = torch.Generator().manual_seed(0)
    one, other = (torch.randn(2, 3, 5, generator=rng) for _ in range(2))
    bias = torch.zeros(2, 3)
    rows = 1 - torch.nn.functional.cosine_similarity(one, other, dim=-1)
    assert matching_loss((one, bias), (other, bias)).item() == pytest.approx(
        rows.mean(1).sum().item(), rel=1e-5
    )


def test_real_gradients_are_class_means() -> None:
    recorded = reference_numbers.load("creff_real_gradients")
    features, labels = torch.tensor(recorded["z"]), recorded["y"]
    for label in sorted(set(labels.tolist())):
        weight, bias = class_gradients(
            features[labels == label][None],
            torch.tensor([label]),
            torch.tensor(recorded["w"]),
            torch.tensor(recorded["b"]),
        )
        np.testing.assert_allclose(weight[0], recorded[f"g_w/{label}"], rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(bias[0], recorded[f"g_b/{label}"], rtol=2e-5, atol=2e-6)


def test_class_gradients_are_those_of_autograd() -> None:
    rng = torch.Generator().manual_seed(3)
    weight, bias = (
        torch.randn(4, 6, generator=rng, requires_grad=True),
        torch.randn(4, generator=rng, requires_grad=True),
    )
    features = torch.randn(2, 5, 6, generator=rng)
    found = class_gradients(features, torch.tensor([1, 3]), weight, bias)
    for group, label in enumerate([1, 3]):
        logits = torch.nn.functional.linear(features[group], weight, bias)
        loss = torch.nn.functional.cross_entropy(logits, torch.full((5,), label))
        wanted = torch.autograd.grad(loss, (weight, bias))
        torch.testing.assert_close(found[0][group], wanted[0])
        torch.testing.assert_close(found[1][group], wanted[1])


def test_feature_optimisation_is_the_released_one() -> None:
    recorded = reference_numbers.load("creff_feature_opt")
    per_class = int(recorded["per_class"])
    before = torch.tensor(recorded["features_before"]).reshape(10, per_class, -1)
    sent: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for key in recorded:
        if key.endswith("/w"):
            label = int(key.split("/")[1].removeprefix("class"))
            pair = (recorded[key].astype(np.float32), recorded[key.removesuffix("w") + "b"])
            sent.setdefault(label, []).append(pair)
    held = sorted(sent)
    wanted = tuple(
        torch.tensor(np.stack([np.mean([pair[part] for pair in sent[label]], axis=0) for label in held]))
        for part in (0, 1)
    )
    after = before.clone()
    after[held] = match_features(
        before[held],
        torch.tensor(held),
        (wanted[0], wanted[1]),
        torch.tensor(recorded["classifier_w"]),
        torch.tensor(recorded["classifier_b"]),
        steps=int(recorded["steps"]),
        lr=float(recorded["lr_feature"]),
        released=True,
    )
    np.testing.assert_allclose(after.reshape(30, -1), recorded["features_after"], rtol=2e-5, atol=2e-5)
    assert not np.allclose(after.reshape(30, -1), recorded["features_before"], atol=1e-3)


def test_retraining_is_the_released_one() -> None:
    recorded = reference_numbers.load("creff_retrain")
    plan = LinearTraining(
        lr=float(recorded["lr"]), epochs=int(recorded["epochs"]), batch_size=30, shuffle=False
    )
    found = train_classifier(
        recorded["w_init"], recorded["b_init"], recorded["features"], recorded["labels"], plan
    )
    np.testing.assert_allclose(found["classifier.weight"], recorded["w_after"], rtol=2e-5, atol=2e-7)
    np.testing.assert_allclose(found["classifier.bias"], recorded["b_after"], rtol=2e-5, atol=2e-7)


def test_classes_without_features_keep_their_weights() -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3, 4)).astype(np.float32), np.zeros(3, np.float32)
    plan = LinearTraining(lr=0.5, epochs=3, batch_size=4)
    found = train_classifier(
        weight, bias, rng.normal(size=(8, 4)).astype(np.float32), np.array([0, 2] * 4), plan
    )
    np.testing.assert_array_equal(found["classifier.weight"][1], weight[1])
    assert not np.array_equal(found["classifier.weight"][0], weight[0])
    assert np.isfinite(found["classifier.weight"]).all()
