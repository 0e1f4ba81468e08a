"""`calibration-iid`: the classifier trained on with a few real samples of all silos' data, drawn together.

Luo et al., "No Fear of Heterogeneity" (CCVR), NeurIPS 2021, measure by it what a calibration from statistics can reach.
No job may do it, since raw data would leave the silos: it is an upper reference in tables and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.tables.definition import IIDCalibration
from fedsilo.api.loading import JobManifest
from fedsilo.data.loaders import all_parts, load_whole
from fedsilo.learning.evaluation import features_of
from fedsilo.learning.examples import Examples
from fedsilo.learning.linear import LinearTraining, train_classifier
from fedsilo.learning.models import Model, load_tree, to_tree
from fedsilo.learning.seeding import derive_seed


def calibrate(network: Model, manifest: JobManifest, settings: IIDCalibration) -> None:
    """Train the network's classifier, as CCVR does on virtual features, on real ones of what the silos have."""
    training = manifest.job.spec.training
    dataset = manifest.silos[0].spec.datasets[0]
    arrays = load_whole(dataset, manifest.job.spec.data, root=Path.cwd())
    seed = derive_seed(training.seed, "calibration-iid")
    held = np.unique(np.concatenate(all_parts(dataset, arrays.labels)))
    chosen = held[drawn(arrays.labels[held], settings.per_class, seed)]
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


def drawn(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Indices of so many random samples of each class, or of all where there are fewer."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.concatenate([rng.permutation(ids)[:per_class] for ids in members])
