"""Upper and lower references: figures that need what no job may do, in tables and nowhere else.

- `iid`: `calibration-iid`, the classifier trained on with a few real samples of all silos' data, drawn together. Luo et
  al., "No Fear of Heterogeneity" (CCVR), NeurIPS 2021, measure by it what a calibration from statistics can reach.
- `pooled`: the images of all silos in one place, "Centralized" in the papers; the loader does it (`datasets.load`).
- `ownModels`: the models that silos keep for themselves, scored on the test set, which is how Guo et al. (FedBR), ICML
  2023, score silos that train alone. They also score the models that silos send (`LastModels`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables.definition import IIDCalibration
from fedsilo.api.loading import JobManifest
from fedsilo.data.loaders import all_parts, load_whole
from fedsilo.engine.scoring import load_test_set
from fedsilo.learning.devices import pick_device
from fedsilo.learning.evaluation import evaluate, features_of
from fedsilo.learning.examples import Examples
from fedsilo.learning.linear import LinearTraining, train_classifier
from fedsilo.learning.models import Model, as_model, build_model, build_module, load_tree, to_tree
from fedsilo.learning.saved import open_model
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods import registry
from fedsilo.methods.interface import PERSONAL_TREE
from fedsilo.methods.state import Tree
from fedsilo.simulation.backend import Backend, Outcome
from fedsilo.simulation.job import Simulation
from fedsilo.simulation.silos import SimulatedTask, SimulatedUpdate

Record = dict[str, Any]


class LastModels:
    """A simulation's backend that keeps the models that silos sent in the last exchange in which any did."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._found: list[Tree] = []

    @classmethod
    def of(cls, simulation: Simulation) -> LastModels:
        """Keep those of a simulation that has not begun."""
        simulation.backend = kept = cls(simulation.backend)
        return kept

    def run(self, tasks: Sequence[SimulatedTask]) -> Iterator[Outcome]:
        """The outcome of each task."""
        sent = []
        for silo, found in self._backend.run(tasks):
            if isinstance(found, SimulatedUpdate) and "model" in found.blocks:
                sent.append(found.blocks["model"])
            yield silo, found
        self._found = sent or self._found

    def close(self) -> None:
        """Release the backend that computes."""
        self._backend.close()

    def accuracy(self, manifest: JobManifest) -> float | None:
        """Their mean accuracy on the test set; None where silos send no whole model of the job's architecture."""
        spec, test = manifest.job.spec, test_set_of(manifest)
        network = build_model(spec.model, spec.data, seed=0).to(test.features.device)
        names = to_tree(network).keys()
        if not self._found or any(not names <= tree.keys() for tree in self._found):
            return None
        accuracies = []
        for tree in self._found:
            load_tree(network, {name: tree[name] for name in names})  # without what else a method trains
            accuracies.append(evaluate(network, test).accuracy)
        return statistics.fmean(accuracies)


def test_set_of(manifest: JobManifest) -> Examples:
    """The test set, on the job's device; also of a job that does not score its model with it."""
    spec = manifest.job.spec
    spec = spec.model_copy(update={"evaluation": spec.evaluation.model_copy(update={"test_dataset": "test"})})
    return load_test_set(spec, Path.cwd(), pick_device(spec.training.device))


def scored_records(
    settings: Mapping[str, Any], manifest: JobManifest, simulation: Simulation
) -> tuple[list[Record], list[float]]:
    """The records of a finished job, with one more where a reference adds a figure, and accuracies by class.

    Where silos keep a part of the model, the accuracy that they report is that of models of their own.

    :param settings: of the cell.
    """
    spec, history = manifest.job.spec, simulation.history()
    test = test_set_of(manifest)
    if settings.get("ownModels"):
        history = [*history, _later_record(history, own_models(manifest, simulation, test))]
    method = registry.bind(spec)
    if method.models.shared.parameters is not None:
        return [_of_own_models(line) for line in history], []
    if not method.models.shared.is_model:
        return history, []
    assert simulation.result is not None
    path = simulation.result.path
    network = as_model(open_model(path), f"{path}: is").to(test.features.device)
    if "iid" in settings:
        calibrate(network, manifest, IIDCalibration.model_validate(settings["iid"]))
        history = [*history, _later_record(history, evaluate(network, test).accuracy)]
    labels = test.labels.cpu().numpy()
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return history, [evaluate(network, test.take(ids)).accuracy for ids in members]


def _of_own_models(line: Record) -> Record:
    metrics = dict(line.get("metrics", {}))
    if "accuracy" in metrics:
        metrics["personal_accuracy"] = metrics.pop("accuracy")
    return {**line, "metrics": metrics}


def _later_record(history: list[Record], accuracy: float) -> Record:
    return {"round": history[-1]["round"] + 1, "metrics": {"accuracy": accuracy}}


def own_models(manifest: JobManifest, simulation: Simulation, test: Examples) -> float:
    """Mean accuracy of the silos' own models on the test set."""
    spec = manifest.job.spec
    architecture = registry.bind(spec).models.own_architecture(spec)
    network = build_module(architecture, spec.data, seed=0).to(test.features.device)
    found = []
    for private in simulation.private.values():
        if PERSONAL_TREE in private.trees:
            load_tree(network, private.tree(PERSONAL_TREE))
            found.append(evaluate(network, test).accuracy)
    return statistics.fmean(found)


def calibrate(network: Model, manifest: JobManifest, settings: IIDCalibration) -> None:
    """Train the network's classifier, as CCVR does on virtual features, on real ones of what the silos have."""
    training = manifest.job.spec.training
    dataset = manifest.silos[0].spec.datasets[0]
    arrays = load_whole(dataset, manifest.job.spec.data, root=Path.cwd())
    seed = derive_seed(training.seed, "calibration-iid")
    held = np.unique(np.concatenate(all_parts(dataset, arrays.labels)))
    chosen = held[drawn_indices(arrays.labels[held], settings.per_class, seed)]
    device = network.classifier.weight.device
    samples = Examples.from_arrays(arrays.features[chosen], arrays.labels[chosen], device)
    tree = {name: array.copy() for name, array in to_tree(network).items()}
    trained = train_classifier(
        tree["classifier.weight"],
        tree.get("classifier.bias"),
        features_of(network, samples),
        arrays.labels[chosen],
        LinearTraining(
            lr=training.optimizer.learning_rate,
            momentum=training.optimizer.momentum,
            batch_size=training.batch_size,
            epochs=settings.epochs,
            seed=seed,
        ),
    )
    load_tree(network, {**tree, **trained})


def drawn_indices(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Indices of so many random samples of each class, or of all where there are fewer."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.concatenate([rng.permutation(ids)[:per_class] for ids in members])
