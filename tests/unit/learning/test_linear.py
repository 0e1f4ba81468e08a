"""Training of a linear classifier on given features."""

from __future__ import annotations

import numpy as np
import pytest

from fedsilo.learning.linear import LinearTraining, train_classifier


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("has_bias", [True, False])
def test_weight_decay_leaves_a_class_without_features_as_it_was(momentum: float, has_bias: bool) -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    features, labels = rng.normal(size=(12, 3)).astype(np.float32), np.array([0, 1, 3] * 4)
    plan = LinearTraining(lr=0.1, epochs=5, batch_size=4, momentum=momentum, weight_decay=0.1)
    found = train_classifier(weight, bias if has_bias else None, features, labels, plan)
    given = {"classifier.weight": weight} | ({"classifier.bias": bias} if has_bias else {})
    assert found.keys() == given.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array[2], given[name][2])
        assert (array[[0, 1, 3]] != given[name][[0, 1, 3]]).all()
