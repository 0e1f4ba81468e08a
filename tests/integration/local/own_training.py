"""Trainings of jobs' own whose processes are lost in a round."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from fedsilo.learning.custom_training import TrainingContext, TrainingData, TrainingOutcome

FEW_EXAMPLES = 250
"""Examples of the silo that is lost, at most."""


def lost_in_round_two(model: Any, data: TrainingData, context: TrainingContext) -> TrainingOutcome:
    """One step of SGD; the process of a silo with few examples ends in round 2, before anything is sent."""
    if len(data.train) < FEW_EXAMPLES and context.round == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    images, labels = next(data.train.batches(64))
    optimizer = torch.optim.SGD(model.parameters(), lr=context.budget.learning_rate)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return TrainingOutcome(model, len(data.train), {"loss": float(loss.detach())})
