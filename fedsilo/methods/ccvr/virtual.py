"""Virtual features of each class with their number, their draw, and the transforms of the paper's options.

Section 4.2 of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsilo.methods.ccvr.config import CCVRConfig
from fedsilo.methods.ccvr.statistics import ClassPool, gaussian_features

MIN_FEATURE = 1e-6
"""Smaller features are raised to this before their logarithm is taken."""


def virtual_features(
    config: CCVRConfig, pooled: Mapping[int, ClassPool], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """M_c draws from N(mu_c, Sigma_c) of each pooled class: features (n, d), float32, and labels (n,)."""
    rng = np.random.default_rng(seed)
    variance = config.shared_variance if config.covariance == "none" else None
    classes = sorted(pooled)
    amounts = virtual_amounts(config, [pooled[label].count for label in classes])
    drawn = [
        gaussian_features(pooled[label], amount, variance, rng)
        for label, amount in zip(classes, amounts, strict=True)
    ]
    features = np.concatenate(drawn)
    if config.relu:
        features = np.maximum(features, 0)
    if config.tukey_beta is not None:
        power = config.tukey_beta
        features = features**power if power else np.log(np.maximum(features, MIN_FEATURE))
    return features.astype(np.float32), np.repeat(classes, amounts)


def virtual_amounts(config: CCVRConfig, counts: Sequence[int]) -> list[int]:
    """M_c of each class: the same of all, or in proportion to N_c with the same mean, rounded, and at least 1.

    :param counts: N_c.
    """
    if not config.proportional:
        return [config.virtual_per_class] * len(counts)
    total = config.virtual_per_class * len(counts)
    return [max(1, round(total * count / sum(counts))) for count in counts]
