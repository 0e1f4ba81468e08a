"""The partitions of NIID-Bench, which FedConcat, MOON and FedDecorr use: by labels, by Dirichlet, and iid.

Li, Diao, Chen and He, "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE 2022;
repositories Xtra-Computing/NIID-Bench and sjtudyq/FedConcat.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import numpy as np

from fedsilo.errors import DataInvalid

MAX_DRAWS = 10_000


def iid(labels: np.ndarray, silos: int, seed: int) -> list[np.ndarray]:
    """One permutation of all samples, cut into parts whose sizes differ by at most one (`homo`)."""
    return np.array_split(np.random.RandomState(seed).permutation(len(labels)), silos)


def by_labels(labels: np.ndarray, silos: int, seed: int, labels_per_silo: int) -> list[np.ndarray]:
    """Every silo owns `labels_per_silo` classes; the owners of a class share it evenly (`noniid-#label<k>`).

    Silo i always owns class i mod C; its other classes are drawn at random.

    :raises DataInvalid: more classes per silo than there are, or a class with samples that no silo owns
    """
    classes = int(labels.max()) + 1
    if labels_per_silo > classes:
        raise DataInvalid(
            f"partition 'labels': config.labelsPerSilo: {labels_per_silo} is more than the {classes} classes;"
            f" use at most {classes}"
        )
    owned = _draw_classes(silos, classes, labels_per_silo, random.Random(seed))
    rng = np.random.RandomState(seed)
    shares: list[list[np.ndarray]] = [[] for _ in range(silos)]
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        rng.shuffle(members)
        owners = [silo for silo in range(silos) if label in owned[silo]]
        if owners:
            for silo, share in zip(owners, np.array_split(members, len(owners)), strict=True):
                shares[silo].append(share)
        elif len(members):
            raise DataInvalid(
                f"partition 'labels': class {label} ({len(members)} samples) falls to none of {silos} silos;"
                f" raise config.labelsPerSilo, use at least {classes} silos, or change the seed"
            )
    return [np.concatenate(share) for share in shares]


def _draw_classes(silos: int, classes: int, count: int, rng: random.Random) -> list[set[int]]:
    owned = []
    for silo in range(silos):
        mine = {silo % classes}
        while len(mine) < count:
            mine.add(rng.randint(0, classes - 1))
        owned.append(mine)
    return owned


def by_dirichlet(
    labels: np.ndarray, silos: int, seed: int, beta: float, min_samples: int = 10
) -> list[np.ndarray]:
    """Every class is divided over the silos by one draw of Dir(beta); silos that are full get no more.

    All is drawn again until every silo has `min_samples` samples (`noniid-labeldir`).

    :raises DataInvalid: no draw gives every silo that many
    """
    rng = np.random.RandomState(seed)

    def shuffled_classes() -> Iterable[np.ndarray]:
        for label in range(int(labels.max()) + 1):
            members = np.flatnonzero(labels == label)
            rng.shuffle(members)
            yield members

    parts = capped_dirichlet(rng, shuffled_classes, len(labels), silos, beta, min_samples)
    for part in parts:
        rng.shuffle(part)
    return parts


def capped_dirichlet(
    rng: np.random.RandomState,
    members_by_class: Callable[[], Iterable[np.ndarray]],
    samples: int,
    workers: int,
    beta: float,
    min_samples: int,
) -> list[np.ndarray]:
    """The rule that NIID-Bench and CReFF share; returns the samples of each worker, class by class.

    :param members_by_class: gives each class's samples in the order in which they are handed out; asked anew
        for every attempt, and lazily, because shuffling a class consumes `rng` between two Dirichlet draws
    :param samples: their total number; a worker that holds `samples / workers` is full
    :raises DataInvalid: `min_samples` is out of reach, or was missed in 10,000 attempts
    """
    for _ in range(MAX_DRAWS if min_samples * workers <= samples else 0):
        parts = _attempt(rng, members_by_class(), samples / workers, workers, beta, min_samples)
        if parts is not None:
            return parts
    raise DataInvalid(
        f"partition: {samples} samples cannot be drawn so that each of {workers} silos has {min_samples}"
        f" with beta {beta:g}; use fewer silos, a smaller minSamples or a larger beta"
    )


def _attempt(
    rng: np.random.RandomState,
    classes: Iterable[np.ndarray],
    capacity: float,
    workers: int,
    beta: float,
    min_samples: int,
) -> list[np.ndarray] | None:
    """The samples of each worker; None where one has too few, which is found before anything is cut."""
    divided: list[tuple[np.ndarray, np.ndarray]] = []
    sizes = np.zeros(workers, dtype=np.int64)
    for members in classes:
        proportions = rng.dirichlet(np.repeat(beta, workers)) * (sizes < capacity)
        total = proportions.sum()
        if (
            not total > 0
        ):  # a tiny beta put all weight on full workers; the released code divides by zero here
            return None
        cuts = (np.cumsum(proportions / total) * len(members)).astype(int)[:-1]
        divided.append((members, cuts))
        sizes += np.diff(cuts, prepend=0, append=len(members))
    if sizes.min() < min_samples:
        return None
    shares = [np.split(members, cuts) for members, cuts in divided]
    return [np.concatenate(share) for share in zip(*shares, strict=True)]
