"""Label distributions of stage 1: the class counts of silos, and what the aggregator makes of them."""

from __future__ import annotations

import logging

import numpy as np

from fedsilo.methods.components.class_moments import reply_of_moments
from fedsilo.methods.interface import Reply, ServerContext, SiloContext, SiloTask
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State

log = logging.getLogger("fedsilo.methods")


def class_distribution(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """Samples of each class, as one block per class; a class below the minimum is left out."""
    del private
    return reply_of_moments(silo.class_moments(task), lambda of: {"count": np.array(of.count, np.int64)})


def label_distribution(counts: np.ndarray) -> np.ndarray:
    """(C,) shares of the counts; uniform where there is none."""
    return counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))


def distributions_of(job: ServerContext, updates: Updates) -> dict[str, np.ndarray]:
    """Silo -> (C,) label distribution P_k = (n_k^1, ..., n_k^C) / n_k, from its class counts.

    Uniform for a silo that may disclose no class at all.
    """
    classes = job.signature.classes
    rows = {}
    for silo in updates.silos:
        counts = np.zeros(classes)
        for name, count in updates.tensors(silo, "class_counts").items():
            # One below the minimum, which no honest silo sends, counts as not disclosed.
            if count >= job.spec.privacy.min_samples_per_class:
                counts[int(name.rpartition("/")[2])] = count
        if not counts.any():
            log.warning(
                "silo %s disclosed the count of no class: its label distribution counts as uniform", silo
            )
        rows[silo] = label_distribution(counts)
    return rows
