"""Scoring a model on labelled examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fedsilo.errors import DataInvalid, MethodError
from fedsilo.learning.metrics.confusion import EvaluationMetrics
from fedsilo.learning.metrics.scores import Scores
from fedsilo.learning.models import Model, evaluating
from fedsilo.learning.training import Examples
from fedsilo.tasks.classification import ClassificationTask, label_scores
from fedsilo.tasks.interface import LearningTask

BATCH_BYTES = 512 << 20
"""Most bytes of a batch's features, in float32; large examples are scored fewer at a time."""


@dataclass(frozen=True)
class Evaluation:
    """Score over all examples.

    :param sums: default metrics of the learning task, the chief one first, and its loss, each summed over examples.
    :param scores: what the job's metrics are computed from, where it names any.
    """

    samples: int
    sums: Mapping[str, float]
    scores: Scores | None = None

    @property
    def loss(self) -> float:
        """Mean over the examples; of classification the cross-entropy in nats."""
        return self.sums["loss"] / self.samples

    @property
    def accuracy(self) -> float:
        """Correct answers per sample; the mean over examples where an example has several parts.

        :raises MethodError: the learning task has none.
        """
        if "accuracy" not in self.sums:
            raise MethodError(
                f"evaluation: accuracy: the task has {', '.join(self.sums)}; ask for one of those"
            )
        return self.sums["accuracy"] / self.samples

    @property
    def correct(self) -> int:
        """Correct examples of a classification; errors as `accuracy`."""
        return round(self.accuracy * self.samples)

    @cached_property
    def figures(self) -> EvaluationMetrics:
        """The job's metrics, the task's default ones among them."""
        own = EvaluationMetrics({name: total / self.samples for name, total in self.sums.items()})
        return own if self.scores is None else own.and_those(self.scores.figures())

    @property
    def metrics(self) -> Mapping[str, float]:
        """The figures that are one number each."""
        return self.figures.metrics


def evaluate(
    model: nn.Module,
    examples: Examples,
    batch_size: int = 512,
    scores: Scores | None = None,
    task: LearningTask | None = None,
) -> Evaluation:
    """Default metrics and loss in evaluation mode; the model's modes are restored afterwards.

    They are summed over examples, so that a short last batch weighs what it should.

    :param task: what the model learns; classification by default.
    :param scores: where further metrics are to be computed; empty yet.
    :raises DataInvalid: there is nothing to score.
    :raises MethodError: the model's outputs are no longer finite.
    """
    if len(examples) == 0:
        raise DataInvalid(
            "evaluation: samples: 0: accuracy needs at least one example; hold out or give more data"
        )
    device = examples.labels.device
    score = label_scores if task is None else task.scores
    names = (*(ClassificationTask.metrics if task is None else task.metrics), "loss")
    sums = torch.zeros(len(names), dtype=torch.float64, device=device)
    order = _batches(examples, batch_size)
    with evaluating(model), torch.inference_mode(), closing(examples.stream(order)) as stream:
        for _, features, labels in stream:
            outputs = model(features)
            if scores is not None:
                scores.update(outputs, labels)
            each = score(outputs, labels)
            sums += torch.stack([each[name].sum(dtype=torch.float64) for name in names])
    found = dict(zip(names, sums.tolist(), strict=True))
    mean = found["loss"] / len(examples)
    if not math.isfinite(mean):
        raise MethodError(
            f"evaluation: loss {mean}: the model has diverged; lower the learning rates and weights of losses in "
            "spec.training and spec.method.config, or set spec.training.gradientClip"
        )
    return Evaluation(len(examples), found, scores)


def features_of(model: Model, examples: Examples, batch_size: int = 512) -> np.ndarray:
    """Features of all examples in evaluation mode, (n, feature), float32, in the order of the examples."""
    order = _batches(examples, batch_size)
    with evaluating(model), torch.inference_mode(), closing(examples.stream(order)) as stream:
        parts = [model.features(features).float().cpu() for _, features, _ in stream]
    return torch.cat(parts).numpy() if parts else np.empty((0, model.feature), np.float32)


def outputs_of(model: nn.Module, examples: Examples, batch_size: int = 512) -> torch.Tensor:
    """Outputs of all examples in evaluation mode, (n, ...), on the device, in the order of the examples."""
    order = _batches(examples, batch_size)
    with evaluating(model), torch.no_grad(), closing(examples.stream(order)) as stream:
        return torch.cat([model(features).float() for _, features, _ in stream])


def _batches(examples: Examples, size: int) -> Sequence[torch.Tensor]:
    """All examples in their order, at most so many and so many bytes at a time."""
    example_bytes = torch.float32.itemsize * math.prod(examples.pool.shape[1:])
    fitting = max(1, BATCH_BYTES // max(example_bytes, 1))
    return torch.split(torch.arange(len(examples), device=examples.labels.device), min(size, fitting))
