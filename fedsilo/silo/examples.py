"""The silo's own examples for a job: read from its dataset, divided into training and validation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsilo.api.datasets import DatasetSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.loaders import load
from fedsilo.data.schema import Schema
from fedsilo.data.split import split_validation
from fedsilo.learning.devices import pick_device
from fedsilo.learning.examples import Examples
from fedsilo.learning.seeding import derive_seed
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.silo.readiness import readiness
from fedsilo.tasks.registry import bind


@dataclass(frozen=True)
class SiloExamples:
    """A silo's examples on the device, and what it announces of them.

    :param findings: what a check of them says; None where the job does not ask for one.
    """

    train: Examples
    validation: Examples
    schema: Schema
    findings: tuple[AnnouncedFinding, ...] | None


def load_examples(spec: FederatedJobSpec, silo: Silo, root: Path) -> tuple[Examples, Examples]:
    """The silo's training and validation examples, on the device that the job asks for.

    :param root: directory that relative dataset paths start from.
    :raises DataInvalid: naming dataset and item.
    """
    found = read_examples(spec, silo, root)
    return found.train, found.validation


def read_examples(spec: FederatedJobSpec, silo: Silo, root: Path) -> SiloExamples:
    """The same with their schema.

    :raises SchemaMismatch: with what the silo announces all the same.
    """
    task = bind(spec.task, spec.data)
    arrays = load(dataset_of(spec, silo), spec.data, root=root, task=spec.task)
    device = pick_device(spec.training.device)
    places = split(spec, silo, task.strata(arrays.labels))
    train, validation = (
        Examples.from_arrays(part.features, part.labels, device, task) for part in map(arrays.take, places)
    )
    return SiloExamples(train, validation, arrays.schema, readiness(spec, silo, arrays, *places))


def dataset_of(spec: FederatedJobSpec, silo: Silo) -> DatasetSpec:
    """The silo's dataset of the job's name."""
    return next(dataset for dataset in silo.spec.datasets if dataset.name == spec.data.dataset)


def split(spec: FederatedJobSpec, silo: Silo, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the silo's samples that it trains on, and of those that it sets aside for validation.

    :param labels: class of each example, `LearningTask.strata` of the targets.
    """
    seed = derive_seed(spec.training.seed, str(silo), "validation")
    return split_validation(labels, spec.data.validation_fraction, seed)
