"""What preprocessing does with every value, from the statistics of all silos together."""

from __future__ import annotations

import numpy as np

from fedsilo.api.data import PreprocessingSpec
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.errors import DataInvalid
from fedsilo.methods.state import Tree


def numbers_of(spec: PreprocessingSpec, found: FeatureStatistics) -> Tree:
    """`fill`, which replaces missing values, `mean`, which is taken off, and `scale`, each (F,), float64.

    A constant feature is only centred: its scale is 1.

    :param found: of all silos together.
    :raises DataInvalid: a feature of which nothing is known.
    """
    if (found.count == 0).any():
        feature = int(np.argmax(found.count == 0))
        raise DataInvalid(
            f"spec.data.preprocessing: feature {feature}: no silo tells of it, since it has no value or fewer than the "
            "minimum of job and silos; leave it out of the data, or lower minSamplesPerFeature"
        )
    nothing = np.zeros(len(found.count))
    return {
        "fill": found.mean,
        "mean": found.mean if spec.standardise else nothing,
        "scale": found.scale if spec.standardise else nothing + 1.0,
    }
