"""A silo's own look at its data before round 1, where the job asks for it."""

from __future__ import annotations

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.arrays import Arrays
from fedsilo.errors import DataInvalid
from fedsilo.methods import registry
from fedsilo.methods.components.post_training import base_method, is_calibration_only
from fedsilo.methods.differential_privacy import noise_multiplier
from fedsilo.methods.method import Method
from fedsilo.readiness.announce import findings_of
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.readiness.facts import SiloData, TrainingLimits
from fedsilo.silo.reply_limits import ReplyLimits, min_samples_per_update


def silo_data(
    spec: FederatedJobSpec, silo: Silo, arrays: Arrays, train: np.ndarray, validation: np.ndarray
) -> SiloData:
    """A silo's data with the minima of job and policy.

    :param train: places of the examples that it trains on.
    :param validation: places of those that it sets aside.
    """
    limits, method = ReplyLimits.of(spec, silo), registry.bind(spec)
    return SiloData(
        silo.metadata.name,
        arrays,
        train,
        validation,
        limits.min_samples_per_class,
        limits.min_values_per_feature,
        tells_counts="class_counts" in silo.spec.policy.payload_kinds,
        tells_features="feature_statistics" in silo.spec.policy.payload_kinds,
        only_silos_score=spec.evaluation.test_dataset is None and method.models.scored,
        limits=_training_limits(method, silo, arrays, train),
    )


def _training_limits(method: Method, silo: Silo, arrays: Arrays, train: np.ndarray) -> TrainingLimits:
    """What a round would refuse of the number of examples, see `learning.training.steps_of` and `noise_multiplier`."""
    private, training = method.spec.privacy.differential_privacy, method.spec.training
    persons = arrays.persons if private is not None and private.unit == "person" else None
    records = len(train) if persons is None else len(np.unique(persons[train]))
    sends_model = method.models.shared.is_model and not is_calibration_only(base_method(method))
    least = min_samples_per_update(silo.spec.policy) if sends_model and training.trainer is None else 0
    problem = None
    if private is not None and private.unit != "silo" and records:
        try:
            noise_multiplier(method, records)
        except DataInvalid as error:
            problem = error.redacted_text
    return TrainingLimits(records, least, problem)


def readiness(
    spec: FederatedJobSpec, silo: Silo, arrays: Arrays, train: np.ndarray, validation: np.ndarray
) -> tuple[AnnouncedFinding, ...] | None:
    """What the silo can tell of its data; None where the job does not ask."""
    if spec.data.check is None:
        return None
    return findings_of(spec, silo_data(spec, silo, arrays, train, validation))
