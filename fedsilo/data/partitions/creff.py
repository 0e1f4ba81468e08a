"""CReFF's long-tailed partition of a dataset over silos.

Shang et al., "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with
Federated Features", IJCAI 2022; repository shangxinyi/CReFF-FL. The Dirichlet stage is that of Lin et al.,
"Ensemble Distillation for Robust Model Fusion in Federated Learning", NeurIPS 2020.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fedsilo.data.catalogue import CreffPartitionConfig
from fedsilo.data.partitions.niid import capped_dirichlet

AUXILIARY_WORKERS = 10


def by_creff(labels: np.ndarray, silos: int, seed: int, config: CreffPartitionConfig) -> list[np.ndarray]:
    """Long tail, label skew over groups of auxiliary workers, even recut; the stages that `config` asks for.

    With `recut`, sizes differ by at most one. The released code demands at least 10 silos; with fewer there
    is one auxiliary worker per silo.

    :raises DataInvalid: the skew cannot give every worker half its even share
    """
    members = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    if config.long_tail:
        members = long_tail(members, config.imbalance, seed)
    rng = np.random.RandomState(seed)
    kept = np.concatenate(members)
    rng.shuffle(kept)
    if not config.dirichlet:
        return np.array_split(kept, silos)
    parts = _skew(kept, labels, silos, config.beta, rng)
    return np.array_split(np.concatenate(parts), silos) if config.recut else parts


def long_tail(members: list[np.ndarray], imbalance: float, seed: int) -> list[np.ndarray]:
    """Thin classes to a long tail: of class c of C, keep `int(n_max * (1 / imbalance) ** (c / (C - 1)))` random
    samples; class 0 is the head.

    :param members: the samples of each class
    :param imbalance: size of the first class over size of the last (the paper's IF)
    """
    rng = np.random.RandomState(seed)
    thinned = []
    for samples, size in zip(
        members, long_tail_sizes(sum(map(len, members)), len(members), imbalance), strict=True
    ):
        shuffled = samples.copy()
        rng.shuffle(shuffled)
        thinned.append(shuffled[:size])
    return thinned


def long_tail_sizes(samples: int, classes: int, imbalance: float) -> list[int]:
    """The exponential profile, with n_max = samples / classes."""
    # (1 / IF) ** x and not IF ** -x: they differ in the last bit, and int() makes a whole sample of that.
    factor = 1 / imbalance
    return [int(samples / classes * factor ** (c / max(classes - 1.0, 1.0))) for c in range(classes)]


def _skew(
    kept: np.ndarray, labels: np.ndarray, silos: int, beta: float, rng: np.random.RandomState
) -> list[np.ndarray]:
    """Cut `kept` into one slice per group of 10 workers and divide each slice inside its group."""
    groups = math.ceil(silos / AUXILIARY_WORKERS)
    step = int(AUXILIARY_WORKERS / silos * len(kept))
    slices = np.split(kept, [step * group for group in range(1, groups)])
    classes = range(int(labels.max()) + 1)
    parts: list[np.ndarray] = []
    for group, ids in enumerate(slices):
        workers = min(AUXILIARY_WORKERS, silos - AUXILIARY_WORKERS * group)
        members = [ids[labels[ids] == label] for label in classes]
        at_least = int(0.5 * len(ids) / workers)
        parts += capped_dirichlet(rng, partial(iter, members), len(ids), workers, beta, at_least)
    return parts
