"""Whatever the silos hold, no method ever yields NaN or infinity."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.federate import federate, model_of
from tests.unit.methods.forms import FORMS, form_spec, holding

CLASSES = 4

silo_labels = st.one_of(
    st.tuples(st.integers(0, CLASSES - 1), st.integers(1, 8)).map(lambda one: [one[0]] * one[1]),  # one class
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=10),
)


def finite(form: str, parts: list[list[int]], minimum: int, spread: float) -> bool:
    labels_of = {f"s{n}": np.array(part) for n, part in enumerate(parts)}
    spec = form_spec(form, list(labels_of), privacy={"minSamplesPerClass": minimum})
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        engine = federate(directory, spec, holding(directory, spec, labels_of, spread))
        return all(np.isfinite(array).all() for array in model_of(engine).values())


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=4)
@given(
    parts=st.lists(silo_labels, min_size=2, max_size=4),
    minimum=st.sampled_from([1, 2, 5, 100]),
    spread=st.sampled_from([0.0, 0.3]),
)
def test_random_partitions(form: str, parts: list[list[int]], minimum: int, spread: float) -> None:
    """Classes of one sample, silos of one class, singular covariances, fewer distributions than clusters."""
    assert finite(form, parts, minimum, spread)


CORNERS = {
    "a class that no silo has": ([[0, 1, 0, 1], [1, 2, 1, 2]], 1, 0.3),
    "a class below the minimum everywhere": ([[0] * 6 + [3], [1] * 6 + [3], [2] * 6], 5, 0.3),
    "one-sample classes": ([[0, 1, 2], [1, 2, 3]], 1, 0.3),
    "one-class silos": ([[0] * 6, [1] * 6, [2] * 6], 1, 0.3),
    "singular covariance": ([[0, 0, 1, 1], [0, 0, 1, 1]], 1, 0.0),
    "no class may be disclosed": ([[0, 1, 2], [3, 3, 3]], 1000, 0.3),
    "more clusters than distributions": ([[0, 1]] * 4, 1, 0.3),
}


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("form", FORMS)
def test_corners(form: str, corner: str) -> None:
    assert finite(form, *CORNERS[corner])
