"""A silo's own look at its data before round 1, where the job asks for it."""

from __future__ import annotations

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.arrays import Arrays
from fedsilo.readiness.announce import findings_of
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.readiness.facts import SiloData
from fedsilo.silo.policy import ReplyLimits


def silo_data(
    spec: FederatedJobSpec, silo: Silo, arrays: Arrays, train: np.ndarray, validation: np.ndarray
) -> SiloData:
    """A silo's data with the minima of job and policy.

    :param train: places of the examples that it trains on.
    :param validation: places of those that it sets aside.
    """
    limits = ReplyLimits.of(spec, silo)
    return SiloData(
        silo.metadata.name,
        arrays,
        train,
        validation,
        limits.min_samples_per_class,
        limits.min_values_per_feature,
        tells_counts="class_counts" in silo.spec.policy.payload_kinds,
    )


def readiness(
    spec: FederatedJobSpec, silo: Silo, arrays: Arrays, train: np.ndarray, validation: np.ndarray
) -> tuple[AnnouncedFinding, ...] | None:
    """What the silo can tell of its data; None where the job does not ask."""
    if spec.data.check is None:
        return None
    return findings_of(spec, silo_data(spec, silo, arrays, train, validation))
