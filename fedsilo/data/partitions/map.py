"""MAP's partitions follow a table of silos x classes, normalised per class, that says who gets how much of what.

Li et al., "MAP: Model Aggregation and Personalization in Federated Learning with Incomplete Classes", IEEE
TKDE 2024; repository lxcnju/MAP. The log-normal quantity skew is in the released code only;
`quantitySigma: 0` switches it off.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fedsilo.data.catalogue import MapPartitionConfig
from fedsilo.errors import DataInvalid

REAL_CONCENTRATIONS = (0.01, 0.1, 0.5, 1.0, 10.0)


def by_map(
    labels: np.ndarray, silos: int, seed: int, config: MapPartitionConfig
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each silo its training and its local test samples.

    Samples of a class are handed out in the order of the dataset. Rounded shares may add up to a few more or
    fewer than there are: the last silo then gets fewer, or some samples go to nobody. A silo with fewer than
    `minSamples` samples gets none.

    :raises DataInvalid: no silo has a share of a class that has samples
    """
    rng = np.random.RandomState(seed)
    sizes = np.bincount(labels)
    ends = _cumulative_counts(_shares(rng, silos, len(sizes), config), sizes)
    members = [np.flatnonzero(labels == label) for label in range(len(sizes))]
    parts = []
    for begin, end in pairwise(ends):
        mine = np.concatenate([ids[b:e] for ids, b, e in zip(members, begin, end, strict=True)])
        mine = mine[rng.permutation(len(mine))]
        if len(mine) < config.min_samples:
            mine = mine[:0]
        test = max(int(config.test_fraction * len(mine)), 1)
        parts.append((mine[test:], mine[:test]))
    return parts


def _shares(rng: np.random.RandomState, silos: int, classes: int, config: MapPartitionConfig) -> np.ndarray:
    """Unnormalised shares, shape (silos, classes)."""
    match config.variant:
        case "map":
            table = np.stack([_some_classes(rng, classes, at_least=2) for _ in range(silos)])
        case "shard":
            table = _round_robin(silos, classes, config.labels_per_silo)
        case "dirichlet":
            table = rng.dirichlet([config.beta] * classes, size=silos)
        case "real":
            table = _mixed_shares(rng, silos, classes)
    # Drawn even for sigma 0, so that the factor alone differs between the two settings.
    return table * rng.lognormal(mean=0.0, sigma=config.quantity_sigma, size=silos)[:, None]


def _some_classes(rng: np.random.RandomState, classes: int, at_least: int) -> np.ndarray:
    """Equal shares of a random number of random classes (incomplete classes)."""
    count = rng.choice(range(min(at_least, classes), classes + 1))
    chosen = rng.choice(range(classes), count, replace=False)
    row = np.zeros(classes)
    row[chosen] = 1.0 / count
    return row


def _round_robin(silos: int, classes: int, per_silo: int) -> np.ndarray:
    """Silo k owns the next `per_silo` classes in the endless sequence 0, 1, ..., C-1, 0, 1, ..."""
    table = np.zeros((silos, classes))
    for silo in range(silos):
        table[silo, np.arange(silo * per_silo, (silo + 1) * per_silo) % classes] = 1.0 / per_silo
    return table


def _mixed_shares(rng: np.random.RandomState, silos: int, classes: int) -> np.ndarray:
    """One half of the silos with Dirichlet shares of random concentration, the other with missing classes."""
    skewed = silos // 2
    rows = []
    for _ in range(skewed):
        concentration = rng.choice(REAL_CONCENTRATIONS)
        rows.append(rng.dirichlet([concentration] * classes))
    for _ in range(silos - skewed):
        owned = _some_classes(rng, classes, at_least=1) > 0
        rows.append(rng.dirichlet(np.where(owned, 1.0, 1e-8)))
    return np.stack(rows)


def _cumulative_counts(table: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Where each silo's samples of each class begin and end, shape (silos + 1, classes)."""
    totals = table.sum(axis=0)
    orphans = np.flatnonzero((totals == 0) & (sizes > 0))
    if len(orphans):
        label = int(orphans[0])
        raise DataInvalid(
            f"partition 'map': class {label} ({sizes[label]} samples) falls to none of {len(table)} silos;"
            " use more silos or change the seed"
        )
    table = table / np.where(totals == 0, 1.0, totals)
    counts = np.round(table * sizes).astype(np.int64)
    return np.concatenate([np.zeros((1, len(sizes)), dtype=np.int64), np.cumsum(counts, axis=0)])
