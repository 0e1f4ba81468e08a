"""The public dataset that an aggregator holds, for methods that learn from one there."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from typing_extensions import override

from fedsilo.methods.method import Method
from fedsilo.tasks.registry import bind

if TYPE_CHECKING:
    from fedsilo.data.arrays import Arrays
    from fedsilo.learning.examples import Examples


def reads_labels(method: Method) -> bool:
    """Whether the method learns from the labels of its public dataset, which then are the job's classes."""
    return method.public_data == "labelled examples"


class PublicDataset:
    """The dataset of `spec.aggregation.publicDataset`, read when it is first asked for and kept on the device.

    :param root: directory that relative dataset paths start from.
    """

    def __init__(self, method: Method, root: Path) -> None:
        self._method, self._root = method, root

    @classmethod
    def of(cls, method: Method, root: Path) -> Self | None:
        """The public dataset of a job; None where its method reads none."""
        return None if method.public_data is None else cls(method, root)

    @cached_property
    def examples(self) -> Examples:
        """Examples of the public dataset; labels that are not read are zeros.

        :raises DataInvalid: they cannot be read, or do not fit the job.
        """
        from fedsilo.learning.devices import pick_device
        from fedsilo.learning.examples import Examples

        spec, arrays = self._method.spec, self._arrays()
        device = pick_device(spec.training.device)
        return Examples.from_arrays(arrays.features, arrays.labels, device, bind(spec.task, spec.data))

    def _arrays(self) -> Arrays:
        from fedsilo.data.loaders import load  # most jobs have no such data, and need no loaders

        spec, name = self._method.spec, self._method.spec.aggregation.public_dataset
        dataset = next(dataset for dataset in spec.aggregator.datasets if dataset.name == name)
        labelled = reads_labels(self._method)
        return load(dataset, spec.data, root=self._root, task=spec.task, labelled=labelled)


class NoExamples(PublicDataset):
    """In its place where nothing is learned, and a job's bytes are all that is asked for."""

    @override
    def _arrays(self) -> Arrays:
        from fedsilo.data.arrays import Arrays

        features = np.empty((0, *self._method.spec.data.input_shape), np.float32)
        return Arrays(features, np.empty(0, np.int64))
