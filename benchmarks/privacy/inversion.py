"""What did the victim's examples look like? From gradients and class statistics back to images.

The victim's update of one local step is a gradient: (w - w_k) / rate. Of a linear layer with bias, a row of the
weight's gradient over the bias's is a mean of inputs, those for which that unit is active; where that is one input, it
is the input itself (Phong et al., "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption", IEEE TIFS
2018; Boenisch et al., "When the Curious Abandon Honesty", EuroS&P 2023). Class means and averaged gradients of the
classifier say features; an image with such features is found by gradient descent.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from fedsilo.learning.models import Model
from fedsilo.methods.state import Tree

RECOGNITION_DECIBELS = 20.0
"""dB from which a person recognises the image."""

STEPS, RATE = 500, 0.05
"""Steps and rate of the descent towards given features, by Adam."""


def of_update(before: Mapping[str, np.ndarray], after: Tree, shape: tuple[int, ...]) -> np.ndarray:
    """(units, *shape) candidates for inputs from the change of the first linear layer, numbers from 0 to 1."""
    weight = next(name for name, array in before.items() if name.endswith("weight") and array.ndim == 2)
    bias = weight.removesuffix("weight") + "bias"
    rows = (before[weight] - after[weight]).astype(np.float64)
    shifts = (before[bias] - after[bias]).astype(np.float64)
    active = np.abs(shifts) > 1e-9
    return np.asarray(np.clip(rows[active] / shifts[active, None], 0, 1).reshape(-1, *shape))


def of_features(model: Model, wanted: np.ndarray, shape: tuple[int, ...], direction: bool) -> np.ndarray:
    """(n, *shape) images whose features are the wanted ones, (n, d), or point in their direction only."""
    target = torch.tensor(wanted, dtype=torch.float32)
    hidden = torch.zeros(len(wanted), *shape, requires_grad=True)
    optimizer = torch.optim.Adam([hidden], lr=RATE)
    for _ in range(STEPS):
        found = model.encoder(hidden.sigmoid())
        if direction:
            loss = -torch.nn.functional.cosine_similarity(found, target).sum()
        else:
            loss = ((found - target) ** 2).sum()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return np.asarray(hidden.detach().sigmoid().numpy())


def feature_directions(gradients: Tree, name: str) -> dict[int, np.ndarray]:
    """Class c -> (d,) direction of its mean feature: row c of its averaged gradient, -(1 - p_c) phi on average."""
    return {
        int(block.rpartition("/")[2]): -array[int(block.rpartition("/")[2])].astype(np.float64)
        for block, array in gradients.items()
        if block.startswith(f"{name}/")
    }


def psnr(images: np.ndarray, originals: np.ndarray) -> np.ndarray:
    """(n, m) peak signal-to-noise ratio in dB of each of n images to each of m originals, of numbers from 0 to 1."""
    left, right = images.reshape(len(images), -1), originals.reshape(len(originals), -1)
    squares = ((left[:, None, :] - right[None, :, :]) ** 2).mean(axis=2)
    return np.asarray(-10 * np.log10(np.maximum(squares, 1e-10)))


def recovery_decibels(images: np.ndarray, originals: np.ndarray) -> np.ndarray:
    """(m,) dB of each original to the image that is its own: no image counts for two; -inf for those that get none."""
    found = np.full(len(originals), -np.inf)
    if len(images):
        ratios = psnr(images, originals)
        rows, columns = linear_sum_assignment(ratios, maximize=True)
        found[columns] = ratios[rows, columns]
    return found
