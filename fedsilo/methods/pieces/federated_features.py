"""CReFF's federated features at the aggregator: moved until they have the silos' gradients, then learned from.

Shang, Lu, Huang, Wang, "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
Federated Features", IJCAI 2022, equations 5 to 7.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from fedsilo.methods.interface import MethodConfig
from fedsilo.methods.pieces.gradients import Gradient, bias_of
from fedsilo.methods.state import Tree

if TYPE_CHECKING:
    from fedsilo.learning.linear import LinearTraining

log = logging.getLogger("fedsilo.methods")


class CReFFConfig(MethodConfig):
    """Settings; defaults are the paper's, Section 5.1."""

    variant: Literal["paper", "released"] = Field(
        default="paper",
        description="paper: eq. 6 as printed, 300 steps of re-training, from the last re-trained classifier in "
        "fedsilo's reading: the paper does not print what its start is. released: rows summed with the bias as one "
        "more, 300 epochs from a new random classifier; real gradients without the code's DSA augmentation of images "
        "[paper; released code].",
    )
    features_per_class: int = Field(
        default=100, ge=1, description="Federated features per class, m [paper, Section 5.1]."
    )
    match_steps: int = Field(
        default=100, ge=1, description="Steps of feature optimisation in a round, I [paper, Section 5.1]."
    )
    feature_learning_rate: float = Field(
        default=0.1, gt=0, description="Learning rate of the features [paper, Section 5.1]."
    )
    retrain: int = Field(
        default=300,
        ge=1,
        description="Re-training, J: steps [paper, Section 5.1] or epochs [released code].",
    )
    retrain_learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="Learning rate of re-training when null: 0.1 [paper, Section 5.1] or 0.01 [released code].",
    )
    retrain_batch_size: int = Field(
        default=32, ge=1, description="Features in a step of re-training [paper, Section 5.1]."
    )

    @property
    def released(self) -> bool:
        """Whether to do as the released code does."""
        return self.variant == "released"


def match(
    config: CReFFConfig, features: np.ndarray, head: Tree, wanted: Mapping[int, Gradient]
) -> np.ndarray:
    """S after I steps towards the gradients (eq. 5, 6), for the head that the silos used.

    A class that no silo disclosed keeps its features. The optimiser has no momentum, so nothing else is kept.

    :param features: (C, m, d).
    :param wanted: class -> its gradient.
    """
    import torch

    from fedsilo.learning.feature_matching import match_features

    features, held = np.array(features), sorted(wanted)
    if not held:
        log.warning(
            "no silo disclosed gradients of a class: the federated features stay as they were; lower "
            "minSamplesPerClass of job and silos, if their samples of a class are too few"
        )
        return features
    weights = torch.tensor(np.stack([wanted[label].weight for label in held]))
    biases = torch.tensor(np.stack([wanted[label].bias for label in held]))
    features[held] = match_features(
        torch.tensor(features[held]),
        torch.tensor(held),
        (weights, biases),
        torch.tensor(head["classifier.weight"]),
        torch.tensor(bias_of(head)),
        steps=config.match_steps,
        lr=config.feature_learning_rate,
        released=config.released,
    ).numpy()
    return features


def retrain(config: CReFFConfig, features: np.ndarray, head: Tree, seed: int) -> Tree:
    """The head trained on all of S and its labels (eq. 7), classes that nobody holds included.

    :param features: (C, m, d).
    :param head: what training starts from. The paper says "initialized as v-tilde" and not what that is; here it is
        the last v-hat, in the released form a new random layer.
    """
    from fedsilo.learning.linear import train_classifier

    classes, amount, width = features.shape
    labels = np.repeat(np.arange(classes), amount)
    rows = features.reshape(-1, width)
    plan = retraining(config, seed)
    return train_classifier(head["classifier.weight"], head.get("classifier.bias"), rows, labels, plan)


def retraining(config: CReFFConfig, seed: int) -> LinearTraining:
    """300 steps at 0.1 (paper) or 300 epochs at 0.01 (released), without momentum."""
    from fedsilo.learning.linear import LinearTraining

    return LinearTraining(
        lr=config.retrain_learning_rate or (0.01 if config.released else 0.1),
        epochs=config.retrain,
        max_steps=None if config.released else config.retrain,
        batch_size=config.retrain_batch_size,
        seed=seed,
    )
