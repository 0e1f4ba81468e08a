"""Label distributions of stage 1: as class counts or with noise, and what the aggregator makes of them."""

from __future__ import annotations

import logging

import numpy as np

from fedsilo.methods.components.class_moments import reply_of_moments
from fedsilo.methods.fedconcat.config import NOISY_KIND
from fedsilo.methods.interface import Reply, ServerContext, SiloContext, SiloTask
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State

log = logging.getLogger("fedsilo.methods")


def class_distribution(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """Samples of each class, as one block per class; a class below the minimum is left out."""
    del private
    return reply_of_moments(silo.class_moments(task), lambda of: {"count": np.array(of.count, np.int64)})


def disclose_noisy(silo: SiloContext, task: SiloTask, private: State, *, epsilon: float) -> Reply:
    """P_k and Laplace noise of scale 1 / epsilon on each class, (C,), neither cut nor scaled, as in the released code.

    A class below the minimum counts as one that the silo has not. The noise is the silo's own in this job: unlike the
    released code's, it does not follow from the job's seed, from which the aggregator could draw it again.
    """
    del task, private
    row = label_distribution(_counts(silo))
    noise = silo.secret_generator("label distribution").laplace(0, 1 / epsilon, len(row))
    return Reply({NOISY_KIND: row + noise}, samples=len(silo.train))


def _counts(silo: SiloContext) -> np.ndarray:
    """(C,) samples of each class; zero below the minimum."""
    counts = np.bincount(silo.train.labels.cpu().numpy(), minlength=silo.signature.classes)
    return np.where(counts >= silo.min_samples_per_class, counts, 0)


def label_distribution(counts: np.ndarray) -> np.ndarray:
    """(C,) shares of the counts; uniform where there is none."""
    return counts / counts.sum() if counts.any() else np.full(len(counts), 1 / len(counts))


def distributions_of(job: ServerContext, updates: Updates) -> dict[str, np.ndarray]:
    """Silo -> (C,) label distribution P_k = (n_k^1, ..., n_k^C) / n_k, from its class counts; or as it came with noise.

    Uniform for a silo that may disclose no class at all.
    """
    classes = job.signature.classes
    rows = {}
    for silo in updates.silos:
        given, counts = updates.tensors(silo, "class_counts"), np.zeros(classes)
        if NOISY_KIND in given:
            rows[silo] = given[NOISY_KIND]
            continue
        for name, count in given.items():
            # One below the minimum, which no honest silo sends, counts as not disclosed.
            if count >= job.spec.privacy.min_samples_per_class:
                counts[int(name.rpartition("/")[2])] = count
        if not counts.any():
            log.warning(
                "silo %s disclosed the count of no class: its label distribution counts as uniform", silo
            )
        rows[silo] = label_distribution(counts)
    return rows
