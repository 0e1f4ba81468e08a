"""A module of a job's own, which tests copy into the directory that a command is called in."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from typing_extensions import override

from fedsilo import TrainingContext, TrainingData, TrainingOutcome


def load(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that a line divides."""
    features = np.random.RandomState(seed).randn(40, 3).astype(np.float32)
    return features, (features[:, 0] > 0).astype(np.int64)


class Network(nn.Module):
    """A network of two layers."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(input_shape[0], 4), nn.ReLU())
        self.classifier = nn.Linear(4, classes)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.encoder(x))
        return logits


class SeenMetric:
    """How many examples were scored."""

    def __init__(self) -> None:
        self.count = 0

    def update(self, probabilities: torch.Tensor, labels: torch.Tensor) -> None:
        """Take a batch of scored examples."""
        self.count += len(labels)

    def compute(self) -> float:
        """Number of examples in all batches."""
        return float(self.count)


def train(model: Any, data: TrainingData, context: TrainingContext) -> TrainingOutcome:
    """One step of a plain loop."""
    features, labels = next(iter(data.train.batches(len(data.train), seed=context.seed)))
    loss = nn.functional.cross_entropy(model(features), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    return TrainingOutcome(model, len(data.train), {"loss": loss.item()})
