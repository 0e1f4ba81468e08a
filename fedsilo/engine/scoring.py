"""Scoring the model at the aggregator, where the job names a test set that the aggregator holds."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from typing_extensions import override

from fedsilo.api.job import FederatedJobSpec, ModelSpec
from fedsilo.data.arrays import Arrays
from fedsilo.data.loaders import load
from fedsilo.data.numbering import SchemaMismatch
from fedsilo.learning.devices import pick_device
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.confusion import EvaluationMetrics
from fedsilo.learning.metrics.scores import Scores, require_metrics
from fedsilo.learning.models import build_module, load_tree
from fedsilo.tasks.registry import bind


class GlobalEvaluation:
    """The job's test set, loaded once and kept on the device.

    :param root: directory that relative dataset paths start from.
    :ivar schema: names and types of the test set, to be compared with those of the silos.
    :raises DataInvalid: when the test set cannot be read.
    :raises ManifestInvalid: when what computes the job's metrics is not installed.
    """

    def __init__(self, spec: FederatedJobSpec, root: Path) -> None:
        self._spec = spec
        self._metrics = ChosenMetrics.of_job(spec)
        require_metrics(self._metrics)
        self._device = pick_device(spec.training.device)
        self._mismatch: SchemaMismatch | None = None
        try:
            arrays = _test_arrays(spec, root)
            self.schema = arrays.schema
            if spec.data.check == "refuse":
                arrays.require_readable()
            self._examples = Examples.from_arrays(
                arrays.features, arrays.labels, self._device, bind(spec.task, spec.data)
            )
        except SchemaMismatch as mismatch:
            # The job fails with the first silo's announcement, and then names the faults of all.
            self._mismatch, self.schema = mismatch, mismatch.schema

    @classmethod
    def of(cls, spec: FederatedJobSpec, root: Path) -> GlobalEvaluation | None:
        """The evaluation of a job; None where it names no test set, and silos score the model."""
        return None if spec.evaluation.test_dataset is None else cls(spec, root)

    def score(self, network: nn.Module) -> EvaluationMetrics:
        """The learning task's metrics and loss, and the job's metrics, of a network on the test set."""
        if self._mismatch is not None:
            raise self._mismatch
        task = bind(self._spec.task, self._spec.data)
        scores = Scores(self._metrics, task)
        return evaluate(network.to(self._device), self._examples, scores=scores, task=task).figures


def network(
    spec: FederatedJobSpec,
    tree: Mapping[str, np.ndarray],
    architecture: ModelSpec | None = None,
) -> nn.Module:
    """A network of the job with these weights, on the CPU.

    :param architecture: the job's own by default.
    """
    model = build_module(architecture or spec.model, spec.data, 0, spec.task)
    load_tree(model, CachedReader(tree))
    return model


class CachedReader(Mapping[str, np.ndarray]):
    """A tree that is read tensor by tensor, each leaving memory when the next is read.

    A stored tree is a mapped file, whose pages would otherwise all be in memory beside the copy that is made of
    them. A tensor that is read again later comes from the file again.
    """

    def __init__(self, tree: Mapping[str, np.ndarray]) -> None:
        self._tree = tree
        self._last: np.ndarray | None = None

    @override
    def __getitem__(self, name: str) -> np.ndarray:
        mapped = _mapping_of(self._last)
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)
        self._last = self._tree[name]
        return self._last

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._tree)

    @override
    def __len__(self) -> int:
        return len(self._tree)


def _mapping_of(array: np.ndarray | None) -> mmap.mmap | None:
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    return owner if isinstance(owner, mmap.mmap) else None


def load_test_set(spec: FederatedJobSpec, root: Path, device: torch.device) -> Examples:
    """The dataset of `spec.evaluation.testDataset`, as the aggregator's datasets define it."""
    arrays = _test_arrays(spec, root)
    return Examples.from_arrays(arrays.features, arrays.labels, device, bind(spec.task, spec.data))


def _test_arrays(spec: FederatedJobSpec, root: Path) -> Arrays:
    name = spec.evaluation.test_dataset
    dataset = next(dataset for dataset in spec.aggregator.datasets if dataset.name == name)
    return load(dataset, spec.data, root=root, task=spec.task)
