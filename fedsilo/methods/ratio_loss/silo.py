"""Ratio Loss in the silo: training on a cross-entropy with the weights that the aggregator hands out."""

from __future__ import annotations

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.methods.components.local import train_model
from fedsilo.methods.components.weighted_loss import class_weighted_loss
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.ratio_loss.config import WEIGHTS, RatioLossConfig
from fedsilo.methods.ratio_loss.monitor import LARGEST_RATIO
from fedsilo.methods.state import State

ROUNDING = 1e-6
"""Part by which a weight in float32 may differ from what the configuration gives."""


def train(silo: SiloContext, task: SiloTask, private: State, *, config: RatioLossConfig) -> Reply:
    """w_k <- E epochs of SGD on the cross-entropy, in which an example weighs what its class weighs."""
    weights = weights_of(task, silo.signature.classes, config)
    return train_model(silo, task, private, loss=class_weighted_loss(weights))


def weights_of(task: SiloTask, classes: int, config: RatioLossConfig) -> np.ndarray:
    """a, (C,), as the task hands it out.

    Its range is the method's own: with weights of 0 but for one class, what a silo sends would be of that class alone.

    :raises MethodError: it is not of the job's classes, or a weight is one that no ratio gives.
    """
    tree = task.trees.get(WEIGHTS, {})
    weights = tree.get(WEIGHTS, np.empty(0))
    least, most = min(1.0, config.alpha), max(1.0, config.alpha + config.beta * LARGEST_RATIO)
    if weights.shape != (classes,) or weights.dtype != np.float32:
        problem = f"are {weights.dtype} of shape {list(weights.shape)}, not float32 of [{classes}]"
    elif not ((least * (1 - ROUNDING) <= weights) & (weights <= most * (1 + ROUNDING))).all():
        problem = f"from {weights.min():g} to {weights.max():g} are not from {least:g} to {most:g}"
    else:
        return weights
    raise MethodError(
        f"task tree {WEIGHTS}: the weights of the classes {problem}, as spec.method.config has them; run the "
        "aggregator and the silos in one version"
    )
