"""Losses, scores and class weights, against scikit-learn and sums written out."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight

from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.regression import RegressionConfig, RegressionTask
from tests.unit.tasks.specs import data_of, task_of

GENERATOR = torch.Generator().manual_seed(0)
BALANCED_WEIGHTS = {"classWeights": "balanced"}


def mean_of_scores(task: LearningTask, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    scores = task.scores(outputs, targets)
    assert set(scores) == {*task.metrics, "loss"}
    assert all(score.shape == (len(targets),) for score in scores.values())
    return {name: float(score.double().mean()) for name, score in scores.items()}


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    task = task_of("classification", data_of(4, classes=4), **BALANCED_WEIGHTS)
    labels = torch.tensor([0, 0, 0, 1, 3, 3])
    weights = task.class_weights(labels)
    assert weights is not None
    expected = compute_class_weight("balanced", classes=np.array([0, 1, 3]), y=labels.numpy())
    np.testing.assert_allclose(weights[[0, 1, 3]], expected, rtol=1e-6)
    assert weights[2] == 0, "a class that the silo lacks"
    assert task_of("classification", data_of(4, classes=4)).class_weights(labels) is None


def test_classes_weigh_alike_in_sum() -> None:
    task = task_of("segmentation", data_of(1, 1, 6, classes=3), ignore=9, **BALANCED_WEIGHTS)
    masks = torch.tensor([[[0, 0, 0, 0, 1, -100]]])
    weights = task.class_weights(masks)
    assert weights is not None
    assert weights.tolist() == [5 / 8, 5 / 2, 0]


def test_labels_weigh_by_absent_over_present() -> None:
    task = task_of("multilabel", data_of(4, classes=3), **BALANCED_WEIGHTS)
    weights = task.class_weights(torch.tensor([[1.0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]]))
    assert weights is not None
    assert weights.tolist() == [3, 1, 1], "of a label that all have or none there is nothing to weigh"


def test_multilabel() -> None:
    task = task_of("multilabel", data_of(4, classes=2))
    outputs, targets = torch.tensor([[2.0, -1.0], [0.5, 3.0]]), torch.tensor([[1.0, 1], [1, 1]])
    p = 1 / (1 + np.exp(-outputs.numpy().astype(np.float64)))
    found = mean_of_scores(task, outputs, targets)
    assert found["accuracy"] == 0.75
    np.testing.assert_allclose(found["loss"], -np.log(p).mean(), rtol=1e-6)
    np.testing.assert_allclose(task.loss(outputs, targets), found["loss"], rtol=1e-6)
    np.testing.assert_allclose(task.predictions(outputs), p, rtol=1e-6)


def test_regression() -> None:
    task = RegressionTask(data_of(4, classes=2), RegressionConfig(outputs=2))
    outputs, targets = torch.tensor([[1.0, 2.0], [0, 0]]), torch.tensor([[1.0, 4.0], [3, 0]])
    assert mean_of_scores(task, outputs, targets) == {"mae": 5 / 4, "loss": 13 / 4}
    assert task.loss(outputs, targets) == 13 / 4


def test_places_that_say_nothing_count_for_nothing() -> None:
    task = task_of("segmentation", data_of(1, 2, 2, classes=3), ignore=255)
    outputs = torch.randn(3, 3, 2, 2, generator=GENERATOR)
    targets = torch.tensor([[[0, 1], [2, 1]], [[0, -100], [-100, -100]], [[-100, -100], [-100, -100]]])
    scores, places = task.scores(outputs, targets), outputs.log_softmax(dim=1)
    losses = [-places[0, t, i, j] for (i, j), t in np.ndenumerate(targets[0].numpy())]
    torch.testing.assert_close(scores["loss"][0], torch.stack(losses).mean())
    torch.testing.assert_close(scores["loss"][1], -places[1, 0, 0, 0])
    assert scores["loss"][2] == 0
    assert scores["accuracy"][2] == 1
    torch.testing.assert_close(
        task.loss(outputs, targets), torch.stack([*losses, -places[1, 0, 0, 0]]).mean()
    )
    silent = task.loss(outputs.requires_grad_(), torch.full_like(targets, -100))
    assert silent == 0 and torch.autograd.grad(silent, outputs)[0].abs().sum() == 0, "and not 0 / 0"


def test_probabilities_sum_to_one() -> None:
    task = task_of("segmentation", data_of(1, 2, 2, classes=3))
    torch.testing.assert_close(
        task.predictions(torch.randn(1, 3, 2, 2, generator=GENERATOR)).sum(dim=1), torch.ones(1, 2, 2)
    )
