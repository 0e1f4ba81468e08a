"""CCVR in the silo: count, mean and covariance of each class's features. Section 4.2 of the paper."""

from __future__ import annotations

import numpy as np

from fedsilo.learning.evaluation import features_of
from fedsilo.methods.components.class_moments import reply_of_moments
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.moments import OneClassMoments, Spread
from fedsilo.methods.state import State, Tree


def class_statistics(silo: SiloContext, task: SiloTask, private: State, *, spread: Spread | None) -> Reply:
    """N_c, mean and covariance of the features of each class, from the task's model in evaluation mode.

    A class below the minimum is left out.

    :param spread: a moment in place of the covariance where silos are seen in a sum only; None sends neither.
    """
    features = features_of(silo.model(task.trees["model"]), silo.train).astype(np.float64)

    def blocks(of: OneClassMoments) -> Tree:
        told: Tree = {"count": np.array(of.count, np.int64), "mean": of.mean}
        return told if spread is None or of.spread is None else told | {spread.kind: of.spread}

    return reply_of_moments(silo.class_moments(task, features, spread), blocks)
