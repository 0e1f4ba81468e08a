"""Class statistics with noise: what one example can add, the noise's deviation, and matrices that stay covariances."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsilo.methods.components.private_steps import noisy_counts, noisy_moments, positive_covariance
from fedsilo.methods.fedconcat.distributions import class_distribution
from fedsilo.methods.interface import SiloContext, SiloTask
from fedsilo.silo.context import LocalContext
from fedsilo.silo.secret import Secret
from tests.federate import job_spec, runners, skewed_silos

TASK = SiloTask("statistics", "calibration", 1, 1, 1, {}, {})


def silo_with(tmp_path: Path, noise: float, norm: float = 2.0) -> LocalContext:
    silos = skewed_silos(tmp_path, {"a": [0, 1, 3]})
    private = {"unit": "example", "noiseMultiplier": noise, "delta": 1e-3, "maxFeatureNorm": norm}
    spec = job_spec("ccvr", ["a"], training={"batchSize": 6}, privacy={"differentialPrivacy": private})
    (runner,) = runners(spec, silos, tmp_path).values()
    return runner.context


def reseeded_context(silo: LocalContext) -> SiloContext:
    """A context of the silo with another secret, which draws anew."""
    return replace(silo, secret=Secret())


def test_with_next_to_no_noise_the_moments_are_those_of_the_clipped_features(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, 1e-6)
    features = np.random.default_rng(0).normal(0, 1, (36, 5))
    labels = silo.train.labels.numpy()
    clipped = features * np.minimum(1, 2.0 / np.linalg.norm(features, axis=1))[:, None]
    moments, mechanisms = noisy_moments(silo, TASK, features, 2)
    assert [count for count, _, _ in moments] == [12, 12, 0, 12]
    for label, (_, total, products) in enumerate(moments):
        own = clipped[labels == label]
        assert total == pytest.approx(own.sum(axis=0), abs=1e-4)
        assert products == pytest.approx(own.T @ own, abs=1e-4)
    assert [(each.sampling, each.times) for each in mechanisms] == [(1.0, 1)]


@given(feature=arrays(float, 6, elements=st.floats(-1e6, 1e6)), norm=st.floats(0.01, 100))
def test_one_example_adds_no_more_than_the_noise_reckons_with(feature: np.ndarray, norm: float) -> None:
    """Count over 1, sum over F, upper triangle over F^2: together at most the square root of 3."""
    clipped = feature * (norm / max(float(np.linalg.norm(feature)), norm))
    triangle = np.outer(clipped, clipped)[np.triu_indices(6)]
    added = np.concatenate([[1.0], clipped / norm, triangle / norm**2])
    assert np.linalg.norm(added) <= np.sqrt(3) * (1 + 1e-9)


@pytest.mark.thorough
def test_the_noise_has_the_stated_deviation(tmp_path: Path) -> None:
    silo, noise, norm = silo_with(tmp_path, 3.0), 3.0, 2.0
    features = np.zeros((36, 5))
    sums, products, counts = [], [], []
    for _ in range(400):
        moments, _ = noisy_moments(reseeded_context(silo), TASK, features, 2)
        sums += [total for _, total, _ in moments]
        products += [found[np.triu_indices(5)] for _, _, found in moments if found is not None]
        counts += [noisy_counts(reseeded_context(silo), TASK)[0][:2] for _ in range(10)]
    # Of 8,000 draws and more: the deviation that they have is off by 3 per cent in one run of some ten thousand.
    assert np.std(sums) == pytest.approx(noise * np.sqrt(3) * norm, rel=0.03)
    assert np.std(products) == pytest.approx(noise * np.sqrt(3) * norm**2, rel=0.03)
    # Rounding to whole examples adds a twelfth to the variance; 12 examples are seldom cut at zero.
    assert np.std(counts) == pytest.approx(np.sqrt(noise**2 + 1 / 12), rel=0.06)


@given(arrays(float, (4, 4), elements=st.floats(-100, 100)))
def test_what_is_made_positive_is_the_nearest_covariance(given_: np.ndarray) -> None:
    symmetric = (given_ + given_.T) / 2
    found = positive_covariance(given_)
    assert found == pytest.approx(found.T)
    assert np.linalg.eigvalsh(found).min() >= -1e-8
    # What was taken away is at right angles to what is left (Higham, 1988, theorem 2.1).
    assert np.sum(found * (symmetric - found)) == pytest.approx(0, abs=1e-6)
    if np.linalg.eigvalsh(symmetric).min() >= 0:
        assert found == pytest.approx(symmetric, abs=1e-8)


def test_counts_below_the_minimum_are_left_out_by_their_noisy_value(tmp_path: Path) -> None:
    reply = class_distribution(silo_with(tmp_path, 0.001), TASK, None)  # type: ignore[arg-type]
    assert {name: int(value) for name, value in reply.tensors.items()} == {
        "count/0": 12,
        "count/1": 12,
        "count/3": 12,
    }
    assert reply.support == {"count/0": 12, "count/1": 12, "count/3": 12}
    assert len(reply.mechanisms) == 1
