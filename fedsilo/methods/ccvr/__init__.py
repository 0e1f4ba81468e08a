"""CCVR calibrates a classifier on virtual representations, after any method that yields one model.

Luo et al., "No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data", NeurIPS
2021, Algorithm 1: every silo sends statistics of its features, the aggregator draws virtual features from the
pooled Gaussian of each class and trains only the classifier on them.

With `training.rounds: 0` and `model.initialWeights` (docs/parameters.md#initial-weights) it calibrates an existing
model in one round. The result is byte for byte that of a job which trained the model itself.
"""

from fedsilo.methods.ccvr.declaration import CCVR

__all__ = ["CCVR"]
