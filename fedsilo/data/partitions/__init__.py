"""Benchmark partitions divide one public dataset over silos as the methods' papers and code do it.

Every scheme is a pure function of the labels. The released programs draw from NumPy's, Python's and torch's
global generators; the functions here issue the same draws in the same order from private generators with the
same seed, so they return the released partitions sample for sample and leave global state alone.
`docs/data.md` names the source of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from fedsilo.data.catalogue import (
    CreffPartitionConfig,
    DirichletConfig,
    FedbrPartitionConfig,
    IidConfig,
    LabelsConfig,
    MapPartitionConfig,
    partition_config,
)
from fedsilo.data.partitions.creff import by_creff
from fedsilo.data.partitions.fedbr import by_fedbr
from fedsilo.data.partitions.map import by_map
from fedsilo.data.partitions.niid import by_dirichlet, by_labels, iid
from fedsilo.errors import DataInvalid

if TYPE_CHECKING:
    from fedsilo.api.datasets import PartitionSpec

__all__ = ["by_creff", "by_dirichlet", "by_fedbr", "by_labels", "by_map", "iid", "partition"]


def partition(labels: np.ndarray, spec: PartitionSpec) -> list[np.ndarray]:
    """For each of the `spec.silos` silos the indices of its samples, int64, in the scheme's order.

    Parts are disjoint. Most schemes hand out every sample; `creff` leaves out what its long tail removes,
    `map` each silo's local test samples and silos that are too small, `fedbr` the up to silos - 1 samples
    that do not divide evenly.

    :param labels: class of every sample, numbered from 0, shape (N,)
    :raises ManifestInvalid: the scheme or its configuration is unknown
    :raises DataInvalid: these labels cannot be divided so
    """
    config = partition_config(spec)
    if len(labels) < spec.silos:
        raise DataInvalid(
            f"partition {spec.scheme!r}: silos: {spec.silos} is more than the {len(labels)} samples;"
            " use fewer silos"
        )
    labels = np.asarray(labels, dtype=np.int64)
    match config:
        case LabelsConfig():
            return by_labels(labels, spec.silos, spec.seed, config.labels_per_silo)
        case DirichletConfig():
            return by_dirichlet(labels, spec.silos, spec.seed, config.beta, config.min_samples)
        case CreffPartitionConfig():
            return by_creff(labels, spec.silos, spec.seed, config)
        case MapPartitionConfig():
            return [train for train, _ in by_map(labels, spec.silos, spec.seed, config)]
        case FedbrPartitionConfig():
            return by_fedbr(labels, spec.silos, spec.seed, config.total_concentration, config.prior)
        case IidConfig():
            return iid(labels, spec.silos, spec.seed)
        case _:
            assert_never(config)
