"""The silo's own examples for a job: read from its dataset, divided into training and validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedsilo.api.datasets import DatasetSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.arrays import Arrays
from fedsilo.data.loaders import load
from fedsilo.data.schema import Schema
from fedsilo.data.split import split_persons, split_validation
from fedsilo.errors import DataInvalid
from fedsilo.learning.devices import pick_device
from fedsilo.learning.examples import Examples
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods import registry
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.silo.readiness import readiness
from fedsilo.tasks.registry import bind

NUMBERED_BY_NAME = ("imagefolder", "maskfolder")
"""Loaders that number classes by their names where the job lists none."""


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
    """Read a silo's examples for a job, with the schema of its data.

    :raises SchemaMismatch: with what the silo announces all the same.
    """
    task = bind(spec.task, spec.data)
    dataset = dataset_of(spec, silo)
    arrays = load(dataset, spec.data, root=root, task=spec.task, exact=not trains_model(spec))
    require_listed(spec, dataset, arrays.schema)
    device = pick_device(spec.training.device)
    places = split(spec, silo, task.strata(arrays.labels), arrays.persons)
    train, validation = (examples_of(spec, part, device) for part in map(arrays.take, places))
    return SiloExamples(train, validation, arrays.schema, readiness(spec, silo, arrays, *places))


def trains_model(spec: FederatedJobSpec) -> bool:
    """Whether anything is trained; otherwise what is told is of the examples, all of them and as they are written."""
    return registry.bind(spec).models.scored


def dataset_of(spec: FederatedJobSpec, silo: Silo) -> DatasetSpec:
    """The silo's dataset of the job's name."""
    return next(dataset for dataset in silo.spec.datasets if dataset.name == spec.data.dataset)


def protects_persons(spec: FederatedJobSpec) -> bool:
    """Whether the job's differential privacy is of persons."""
    private = spec.privacy.differential_privacy
    return private is not None and private.unit == "person"


def require_listed(spec: FederatedJobSpec, dataset: DatasetSpec, schema: Schema) -> None:
    """Refuse classes that are numbered by names which differential privacy does not let out to be compared.

    :raises DataInvalid: naming the dataset.
    """
    unlisted = schema.classes is not None and spec.data.class_names is None
    if spec.privacy.differential_privacy is not None and unlisted and dataset.loader in NUMBERED_BY_NAME:
        raise DataInvalid(
            f"dataset {dataset.name!r}: numbers its classes by name, and with differential privacy no names leave the "
            "silo to be compared; list the names of all classes in spec.data.classes"
        )


def examples_of(spec: FederatedJobSpec, arrays: Arrays, device: torch.device) -> Examples:
    """Samples on the device, with whose each is where the job protects persons."""
    examples = Examples.from_arrays(arrays.features, arrays.labels, device, bind(spec.task, spec.data))
    if arrays.persons is None or not protects_persons(spec):
        return examples
    return replace(examples, persons=np.unique(arrays.persons, return_inverse=True)[1])


def split(
    spec: FederatedJobSpec, silo: Silo, labels: np.ndarray, persons: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the silo's samples that it trains on, and of those that it sets aside for validation.

    :param labels: class of each example, `LearningTask.strata` of the targets.
    :param persons: whose each is, which a job that protects persons goes by; None where the data do not say.
    :raises DataInvalid: such a job, and data that do not say.
    """
    seed, fraction = (
        derive_seed(spec.training.seed, str(silo), "validation"),
        spec.data.validation_fraction or 0.0,
    )
    if not protects_persons(spec):
        return split_validation(labels, fraction, seed)
    if persons is None:
        raise DataInvalid(_names_nobody(dataset_of(spec, silo)))
    return split_persons(persons, fraction, seed)


def _names_nobody(dataset: DatasetSpec) -> str:
    remedy = (
        "have the function return persons as its fourth value"
        if dataset.loader.startswith("python:")
        else f"set its config.person, where loader {dataset.loader} has it, or use a python: loader"
    )
    return (
        f"dataset {dataset.name!r}: does not say whose each example is, and the job's differential privacy is of "
        f"unit person; {remedy}"
    )
