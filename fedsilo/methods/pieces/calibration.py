"""Calibration of a classifier on virtual features, drawn from the pooled Gaussian of each class.

Luo et al., "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data", NeurIPS
2021, Section 4.2 and Algorithm 1.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from pydantic import Field

from fedsilo.methods.interface import MethodConfig, ServerContext
from fedsilo.methods.pieces.statistics import Covariance, Pooled, gaussian_features
from fedsilo.methods.state import Tree

log = logging.getLogger("fedsilo.methods")

LEAST = 1e-6
"""Features below this count as this where their logarithm is taken."""


class CalibrationConfig(MethodConfig):
    """What is disclosed, what is drawn from it, and how the classifier is trained on that."""

    covariance: Covariance = Field(
        default="full",
        description="full: d x d per class [paper, Section 4.2]; diagonal: d; none: means and one shared variance.",
    )
    shared_variance: float = Field(
        default=1.0, gt=0, description="Variance of every feature when covariance is none [fedsilo]."
    )
    virtual_per_class: int = Field(
        default=100,
        ge=1,
        description="Virtual features M_c [paper, experiments: 100, 500, 1000 for CIFAR-10, CIFAR-100, CINIC-10].",
    )
    epochs: int = Field(
        default=10, ge=1, description="Passes over the virtual features [fedsilo: not printed]."
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="Of the calibration; the job's when null [fedsilo: not printed]."
    )
    relu: bool = Field(
        default=False,
        description="Cut virtual features at zero, as real ones after a ReLU are [option of the paper].",
    )
    tukey_beta: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Tukey's transform x^beta of virtual features, log x for 0; needs relu [option of the paper].",
    )


def calibrate(
    job: ServerContext, config: CalibrationConfig, model: Tree, pooled: Mapping[int, Pooled]
) -> Tree:
    """The model with its classifier trained on virtual features, starting from the trained classifier.

    A class that no silo disclosed has no virtual features and takes no part in the softmax, so that its weights
    stay as they are.
    """
    from fedsilo.learning.linear import LinearTraining, train_classifier

    if not pooled:
        log.warning(
            "no silo disclosed statistics of a class: the classifier stays as it was trained; lower minSamplesPerClass "
            "of job and silos, if their samples of a class are too few"
        )
        return model
    training = job.spec.training
    features, labels = virtual_features(config, pooled, job.seed("virtual features"))
    trained = train_classifier(
        model["classifier.weight"],
        model.get("classifier.bias"),
        features,
        labels,
        plan=LinearTraining(
            lr=config.learning_rate or training.optimizer.learning_rate,
            momentum=training.optimizer.momentum,
            batch_size=training.batch_size,
            epochs=config.epochs,
            seed=job.seed("calibration"),
        ),
    )
    return {**model, **trained}


def virtual_features(
    config: CalibrationConfig, pooled: Mapping[int, Pooled], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """M_c draws from N(mu_c, Sigma_c) of each pooled class: features (n, d), float32, and labels (n,)."""
    rng = np.random.default_rng(seed)
    variance = config.shared_variance if config.covariance == "none" else None
    classes = sorted(pooled)
    drawn = [gaussian_features(pooled[label], config.virtual_per_class, variance, rng) for label in classes]
    features = np.concatenate(drawn)
    if config.relu:
        features = np.maximum(features, 0)
    if config.tukey_beta is not None:
        power = config.tukey_beta
        features = features**power if power else np.log(np.maximum(features, LEAST))
    return features.astype(np.float32), np.repeat(classes, config.virtual_per_class)
