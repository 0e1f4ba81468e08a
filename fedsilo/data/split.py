"""Setting a silo's validation samples aside."""

from __future__ import annotations

import hashlib

import numpy as np


def split_validation(labels: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and of validation samples, both ascending, stratified by class.

    Of a class with n samples, `fraction * n` rounded to the nearest integer (halves up) go to validation, but
    never all of them: a class that a silo owns is always trained on. Fraction 0 gives an empty second part.

    :param labels: class of every sample, shape (N,)
    :param fraction: share of samples for validation, at least 0 and below 1
    :param seed: the same seed gives the same split on every machine
    """
    if fraction == 0:
        return np.arange(len(labels)), np.arange(0)
    # RandomState and not default_rng: NumPy promises that its streams never change. It takes 32 bits of seed.
    rng = np.random.RandomState(seed % 2**32)
    held_out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        amount = min(int(fraction * len(members) + 0.5), len(members) - 1)
        held_out[rng.permutation(members)[:amount]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def split_persons(persons: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the samples of persons for training and validation, with all samples of a person in one of the two parts.

    Each person goes to validation with probability `fraction`, by a hash of seed and name: whoever else is there
    changes nothing about it, as differential privacy of persons needs.

    :param persons: whose each sample is, shape (N,), texts
    :param fraction: share of persons for validation, at least 0 and below 1
    """
    names, person_of = np.unique(persons, return_inverse=True)
    drawn = np.array([_uniform_draw(f"{seed}/{name}") for name in names.tolist()])
    held_out = (drawn < fraction)[person_of]
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _uniform_draw(text: str) -> float:
    """A number from 0 to below 1 for a text."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
