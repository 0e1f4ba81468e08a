"""Scoring a model on labelled examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedsilo.errors import DataInvalid, MethodError
from fedsilo.learning.metrics.confusion import Figures
from fedsilo.learning.metrics.scores import Scores
from fedsilo.learning.models import Model, evaluating
from fedsilo.learning.training import Examples


@dataclass(frozen=True)
class Evaluation:
    """Score over all examples.

    :param accuracy: correct / samples.
    :param loss: cross-entropy, mean over samples, in nats.
    :param scores: what the job's metrics are computed from, where it names any.
    """

    accuracy: float
    loss: float
    samples: int
    correct: int
    scores: Scores | None = None

    @cached_property
    def figures(self) -> Figures:
        """The job's metrics, accuracy and loss among them."""
        own = Figures({"accuracy": self.accuracy, "loss": self.loss})
        return own if self.scores is None else own.and_those(self.scores.figures())

    @property
    def metrics(self) -> Mapping[str, float]:
        """The figures that are one number each."""
        return self.figures.metrics


def evaluate(
    model: nn.Module, examples: Examples, batch_size: int = 512, scores: Scores | None = None
) -> Evaluation:
    """Accuracy and loss in evaluation mode; the model's modes are restored afterwards.

    Correct answers and losses are summed over samples, so that a short last batch weighs what it should.

    :param scores: where further metrics are to be computed; empty yet.
    :raises DataInvalid: there is nothing to score.
    :raises MethodError: the model's outputs are no longer finite.
    """
    if len(examples) == 0:
        raise DataInvalid(
            "evaluation: samples: 0: accuracy needs at least one example; hold out or give more data"
        )
    device = examples.labels.device
    correct = torch.zeros((), dtype=torch.int64, device=device)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    order = torch.split(torch.arange(len(examples), device=device), batch_size)
    with evaluating(model), torch.inference_mode(), closing(examples.stream(order)) as stream:
        for _, features, labels in stream:
            logits = model(features)
            if scores is not None:
                scores.update(logits, labels)
            correct += (logits.argmax(dim=1) == labels).sum()
            loss += functional.cross_entropy(logits.float(), labels, reduction="none").sum(
                dtype=torch.float64
            )
    samples, hits = len(examples), int(correct.item())
    mean = loss.item() / samples
    if not math.isfinite(mean):
        raise MethodError(
            f"evaluation: loss {mean}: the model has diverged; lower the learning rates and weights of losses in "
            "spec.training and spec.method.config, or set spec.training.gradientClip"
        )
    return Evaluation(accuracy=hits / samples, loss=mean, samples=samples, correct=hits, scores=scores)


def features_of(model: Model, examples: Examples, batch_size: int = 512) -> np.ndarray:
    """Features of all examples in evaluation mode, (n, feature), float32, in the order of the examples."""
    order = torch.split(torch.arange(len(examples), device=examples.labels.device), batch_size)
    with evaluating(model), torch.inference_mode(), closing(examples.stream(order)) as stream:
        parts = [model.features(features).float().cpu() for _, features, _ in stream]
    return torch.cat(parts).numpy() if parts else np.empty((0, model.feature), np.float32)
