"""Scoring the model at the aggregator, where the job names a test set that the aggregator holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from fedsilo.data.loaders import load
from fedsilo.learning.devices import pick_device
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import build_model, load_tree
from fedsilo.manifests.job import FederatedJobSpec, ModelSpec


class GlobalEvaluation:
    """The job's test set, loaded once and kept on the device.

    :param root: directory that relative dataset paths start from.
    :raises DataInvalid: when the test set cannot be read.
    """

    def __init__(self, spec: FederatedJobSpec, architecture: ModelSpec, root: Path) -> None:
        self._spec = spec
        self._architecture = architecture
        self._device = pick_device(spec.training.device)
        self._examples = load_test_set(spec, root, self._device)

    def score(self, tree: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Accuracy and mean cross-entropy of these weights on the test set."""
        model = build_model(self._architecture, self._spec.data, seed=0)
        load_tree(model, tree)
        evaluation = evaluate(model.to(self._device), self._examples)
        return {"accuracy": evaluation.accuracy, "loss": evaluation.loss}


def load_test_set(spec: FederatedJobSpec, root: Path, device: torch.device) -> Examples:
    """The dataset of `spec.evaluation.testDataset`, as the aggregator's datasets define it."""
    name = spec.evaluation.test_dataset
    dataset = next(dataset for dataset in spec.aggregator.datasets if dataset.name == name)
    arrays = load(dataset, spec.data, root=root)
    return Examples.from_arrays(arrays.features, arrays.labels, device)
