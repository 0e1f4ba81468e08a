"""Networks and training functions as a job's own package would bring them."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from fedsilo.learning.custom_training import TrainingContext, TrainingData, TrainingOutcome
from fedsilo.learning.models import Model

Shape = tuple[int, ...]


def normalised_network(input_shape: Shape, classes: int) -> SimpleNamespace:
    encoder = nn.Sequential(nn.Linear(input_shape[0], 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 6))
    return SimpleNamespace(encoder=encoder, classifier=nn.Linear(6, classes))


def tied_network(input_shape: Shape, classes: int) -> SimpleNamespace:
    first, second = nn.Linear(input_shape[0], input_shape[0]), nn.Linear(input_shape[0], input_shape[0])
    second.weight = first.weight
    return SimpleNamespace(
        encoder=nn.Sequential(first, second), classifier=nn.Linear(input_shape[0], classes)
    )


def careless_trainer(model: Model, data: TrainingData, context: TrainingContext) -> TrainingOutcome:
    """Own training that changes the first tensor that is frozen."""
    with torch.no_grad():
        next(parameter for parameter in model.parameters() if not parameter.requires_grad).add_(1e-3)
    return TrainingOutcome(model, len(data.train), {"loss": 1.0})


def nudging(model: Model, data: TrainingData, context: TrainingContext) -> TrainingOutcome:
    """Own training that changes a frozen tensor, which no gradient has asked for."""
    with torch.no_grad():
        model.get_parameter("encoder.0.bias").add_(1.0)
    return TrainingOutcome(model, len(data.train))


def shifting(model: Model, data: TrainingData, context: TrainingContext) -> TrainingOutcome:
    """Own training that changes what it may."""
    with torch.no_grad():
        model.classifier.bias.add_(1.0)
    return TrainingOutcome(model, len(data.train))
