"""The silos' examples on one device: a dataset that several silos divide is read, and held, once."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsilo.api.datasets import DatasetSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.data.arrays import Arrays
from fedsilo.data.loaders import all_parts, load_whole, own_part
from fedsilo.data.schema import Schema
from fedsilo.learning.devices import pick_device
from fedsilo.learning.examples import Examples
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.silo.examples import dataset_of, examples_of, require_listed, split, trains_model
from fedsilo.silo.readiness import readiness
from fedsilo.tasks.registry import bind


@dataclass(frozen=True)
class _WholeDataset:
    """A dataset before it is divided.

    :param strata: class of each example, `LearningTask.strata` of the targets.
    :param persons: whose each is; None where the data do not say.
    """

    examples: Examples
    strata: np.ndarray
    schema: Schema
    persons: np.ndarray | None


class SharedData:
    """Examples of one job's silos.

    :param root: directory that relative dataset paths start from.
    """

    def __init__(self, spec: FederatedJobSpec, root: Path) -> None:
        self._spec = spec
        self._task = bind(spec.task, spec.data)
        self._root = root
        self._device = pick_device(spec.training.device)
        self._full: dict[Hashable, _WholeDataset] = {}
        self._parts: dict[Hashable, list[np.ndarray]] = {}
        self._arrays: dict[Hashable, Arrays] = {}

    def examples(self, silo: Silo) -> tuple[Examples, Examples]:
        """The silo's training and validation examples, the same as it has in a process of its own.

        :raises DataInvalid: naming dataset and item.
        """
        own, train, validation = self._places(silo)
        whole = self._load(dataset_of(self._spec, silo)).examples
        return whole.take(own[train]), whole.take(own[validation])

    def findings(self, silo: Silo) -> tuple[AnnouncedFinding, ...] | None:
        """What a check of the silo's data says; None where the job does not ask for one. Errors as `examples`."""
        if self._spec.data.check is None:
            return None
        own, train, validation = self._places(silo)
        whole = self._arrays[_source(dataset_of(self._spec, silo))]
        return readiness(self._spec, silo, whole.take(own), train, validation)

    def _places(self, silo: Silo) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places of the silo's examples in the dataset, and of its training and validation examples among those."""
        dataset = dataset_of(self._spec, silo)
        whole = self._load(dataset)
        labels = whole.strata
        own = np.arange(len(labels)) if dataset.partition is None else self._own_indices(dataset, labels)
        persons = None if whole.persons is None else whole.persons[own]
        return own, *split(self._spec, silo, labels[own], persons)

    def schema(self, silo: Silo) -> Schema:
        """What the silo announces of its data; errors as `examples`."""
        return self._load(dataset_of(self._spec, silo)).schema

    def _load(self, dataset: DatasetSpec) -> _WholeDataset:
        source = _source(dataset)
        if source not in self._full:
            exact, task = not trains_model(self._spec), self._spec.task
            arrays = load_whole(dataset, self._spec.data, root=self._root, task=task, exact=exact)
            require_listed(self._spec, dataset, arrays.schema)
            examples = examples_of(self._spec, arrays, self._device)
            if self._spec.data.check is not None:
                self._arrays[source] = arrays
            strata = self._task.strata(arrays.labels)
            self._full[source] = _WholeDataset(examples, strata, arrays.schema, arrays.persons)
        return self._full[source]

    def _own_indices(self, dataset: DatasetSpec, labels: np.ndarray) -> np.ndarray:
        division = dataset.partition
        assert division is not None
        key = (_source(dataset), division.scheme, division.silos, division.seed, _text(division.config))
        if key not in self._parts:
            self._parts[key] = all_parts(dataset, labels)
        return own_part(dataset, self._parts[key])


def _source(dataset: DatasetSpec) -> Hashable:
    return dataset.loader, _text(dataset.config), _text(dataset.class_aliases)


def _text(config: object) -> str:
    return json.dumps(config, sort_keys=True, default=str)
