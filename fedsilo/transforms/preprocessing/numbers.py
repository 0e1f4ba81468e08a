"""What preprocessing does with every value, from the statistics of all silos together."""

from __future__ import annotations

import numpy as np

from fedsilo.api.data import PreprocessingSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.errors import DataInvalid
from fedsilo.learning.preprocessing_numbers import TARGET_MEAN, TARGET_SCALE
from fedsilo.methods.state import Tree
from fedsilo.tasks.registry import bind, check_task
from fedsilo.tasks.regression import RegressionTask


def standardised_outputs(spec: FederatedJobSpec) -> int:
    """How many numbers of a target are standardised; 0 where targets stay as they are. No own task is imported."""
    task = spec.task
    if task is None or task.name != RegressionTask.name or check_task(task, spec.data):
        return 0
    bound = bind(task, spec.data)
    return bound.outputs if bound.standardises_targets else 0


def numbers_of(
    spec: PreprocessingSpec, found: FeatureStatistics, targets: FeatureStatistics | None = None
) -> Tree:
    """`fill`, which replaces missing values, `mean`, which is taken off, and `scale`, each (F,), float64.

    A constant feature is only centred: its scale is 1. `TARGET_MEAN` and `TARGET_SCALE` are the same of targets.

    :param found: of all silos together.
    :param targets: statistics of the targets, (outputs,), where they are standardised.
    :raises DataInvalid: a feature of which nothing is known.
    """
    if (found.count == 0).any():
        feature = int(np.argmax(found.count == 0))
        raise DataInvalid(
            f"spec.data.preprocessing: feature {feature}: no silo tells of it, since it has no value or fewer than the "
            "minimum of job and silos; leave it out of the data, or lower minSamplesPerFeature"
        )
    if targets is not None and (targets.count == 0).any():
        raise DataInvalid(
            "spec.data.preprocessing: targets: no silo tells of them, since it has fewer examples than the minimum of "
            "job and silos; lower minSamplesPerFeature, or write standardise: false"
        )
    prepared = {} if targets is None else {TARGET_MEAN: targets.mean, TARGET_SCALE: targets.scale}
    nothing = np.zeros(len(found.count))
    return {
        "fill": found.mean,
        "mean": found.mean if spec.standardise else nothing,
        "scale": found.scale if spec.standardise else nothing + 1.0,
        **prepared,
    }
