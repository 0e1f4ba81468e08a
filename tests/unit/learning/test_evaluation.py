from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.errors import DataInvalid, MethodError
from fedsilo.learning import evaluation
from fedsilo.learning.evaluation import Evaluation, evaluate, features_of
from fedsilo.learning.models import Model
from fedsilo.learning.training import Examples


def identity_model() -> Model:
    classifier = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        classifier.weight.copy_(torch.eye(3))
    return Model(nn.Identity(), classifier)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 512])
def test_exact_counts_whatever_the_batches(batch_size: int) -> None:
    logits = np.eye(3, dtype="f4")[[0, 1, 2, 0, 1, 2, 0]]
    labels = np.array([0, 1, 2, 0, 1, 0, 1])
    found = evaluate(identity_model(), Examples.from_arrays(logits, labels, "cpu"), batch_size)
    right, wrong = math.log(math.e + 2) - 1, math.log(math.e + 2)
    assert (found.samples, found.correct) == (7, 5)
    assert found.accuracy == 5 / 7
    assert found.loss == pytest.approx((5 * right + 2 * wrong) / 7)


def test_dropout_is_off_and_every_mode_comes_back() -> None:
    model = identity_model()
    frozen = nn.BatchNorm1d(3).eval()
    model.encoder = nn.Sequential(nn.Dropout(0.9), frozen)
    examples = Examples.from_arrays(np.eye(3, dtype="f4"), np.arange(3), "cpu")
    assert evaluate(model, examples) == evaluate(model, examples)
    assert evaluate(model, examples).accuracy == 1.0
    assert model.training
    assert model.encoder[0].training
    assert not frozen.training
    assert frozen.num_batches_tracked == 0


def test_learning_can_go_on_afterwards() -> None:
    model = identity_model()
    examples = Examples.from_arrays(np.eye(3, dtype="f4"), np.arange(3), "cpu")
    assert isinstance(evaluate(model, examples), Evaluation)
    model(examples.features).sum().backward()
    assert model.classifier.weight.grad is not None


def test_nothing_to_score() -> None:
    with pytest.raises(DataInvalid, match="samples: 0: accuracy needs at least one example"):
        evaluate(identity_model(), Examples.from_arrays(np.zeros((0, 3), "f4"), np.zeros(0, int), "cpu"))


def test_answers_that_are_no_numbers_are_no_score() -> None:
    features = np.full((3, 3), 3e38, "f4")
    model = identity_model()
    with torch.no_grad():
        model.classifier.weight.mul_(10)
    with pytest.raises(
        MethodError, match=r"evaluation: loss nan: the model has diverged; lower the learning"
    ):
        evaluate(model, Examples.from_arrays(features, np.arange(3), "cpu"))


def test_large_examples_are_scored_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return x

    model = identity_model()
    model.encoder.forward = forward
    examples = Examples.from_arrays(np.eye(3, dtype="f4")[[0, 1, 2, 0, 1]], np.zeros(5, int), "cpu")
    evaluate(model, examples)
    monkeypatch.setattr(evaluation, "BATCH_BYTES", 2 * 3 * 4)
    evaluate(model, examples)
    features_of(model, examples)
    assert sizes == [5, 2, 2, 1, 2, 2, 1]
