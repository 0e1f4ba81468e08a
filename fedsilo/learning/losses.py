"""The loss that a job's learning task gives to local training."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from torch import Tensor, nn

from fedsilo.learning.training import Loss
from fedsilo.tasks.interface import LearningTask


def task_loss(task: LearningTask, targets: Tensor) -> Loss:
    """Mean loss of a batch.

    :param targets: of all training examples of the silo, from which its class weights follow where the job wants them.
    """
    weights = task.class_weights(targets)

    def loss(module: nn.Module, features: Tensor, batch: Tensor) -> Tensor:
        return task.loss(module(features), batch, weights)

    return loss


def task_divisor(task: LearningTask, targets: Tensor) -> Callable[[Tensor], Tensor | None]:
    """What that loss divides its sum over some targets by; None where it is their number.

    :param targets: of all training examples of the silo.
    """
    weights = cache(lambda: task.class_weights(targets))  # only where a batch is divided
    return lambda batch: task.divisor(batch, weights())
