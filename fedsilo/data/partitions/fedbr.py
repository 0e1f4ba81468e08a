"""FedBR's partition of a dataset into silos of equal sizes, each almost pure in its classes.

Guo, Tang and Lin, "FedBR: Improving Federated Learning on Heterogeneous Data via Local Learning Bias
Reduction", ICML 2023; repository LINs-lab/FedBR.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import torch


def by_fedbr(
    labels: np.ndarray,
    silos: int,
    seed: int,
    total_concentration: float = 0.1,
    prior: Literal["remaining", "uniform"] = "remaining",
) -> list[np.ndarray]:
    """Partition samples silo by silo: draw class probabilities once, then class and sample one at a time without
    replacement.

    Every silo gets floor(N / silos) samples. The Dirichlet parameters are `total_concentration` times the
    class frequencies that remain (0.1 p as released for MNIST and CIFAR-10), or times 1 / C (0.1 for each of
    the 100 classes of CIFAR-100 is a total of 10, uniform). A class that runs out leaves the probabilities.
    """
    # torch is needed for its random stream alone, so only this scheme loads it.
    import torch

    uniform = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    remaining = [np.flatnonzero(labels == label).tolist() for label in range(int(labels.max()) + 1)]
    parts = []
    for _ in range(silos):
        frequencies = _normalised_weights(torch.tensor([float(len(members)) for members in remaining]))
        base = frequencies if prior == "remaining" else torch.full_like(frequencies, 1 / len(remaining))
        probabilities = torch._sample_dirichlet(total_concentration * base, generator)
        part: list[int] = []
        while len(part) < len(labels) // silos:
            label = int(torch.multinomial(probabilities, 1, generator=generator))
            if members := remaining[label]:
                part.append(members.pop(uniform.randint(0, len(members) - 1)))
            else:
                probabilities[label] = 0
                # Where nothing is left of the draw, go on with the classes that still have samples.
                probabilities = _normalised_weights(probabilities if probabilities.any() else frequencies)
        parts.append(np.array(part, dtype=np.int64))
    return parts


def _normalised_weights(weights: torch.Tensor) -> torch.Tensor:
    # Python's sum adds left to right in float32, as the released code does; torch's own sum need not.
    return weights / sum(weights)
