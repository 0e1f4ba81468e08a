"""Whatever the silos hold, no method ever yields NaN or infinity."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.methods import registry
from fedsilo.simulation.simulate import simulate
from fedsilo.wire import open_blob
from tests.unit.methods.forms import FIRST_FORMS, FORMS, each_form, form_manifest, form_spec

CLASSES = 4

silo_labels = st.one_of(
    st.tuples(st.integers(0, CLASSES - 1), st.integers(1, 8)).map(lambda one: [one[0]] * one[1]),  # one class
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=10),
)


def finite(form: str, parts: list[list[int]], minimum: int, spread: float) -> bool:
    labels_of = {f"s{n}": np.array(part) for n, part in enumerate(parts)}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        least = {"minSamplesPerClass": minimum}
        simulation = simulate(
            form_manifest(directory, form, labels_of, spread, privacy=least), directory, directory / "job"
        )
        assert simulation.result is not None
        model = open_blob(simulation.result.path).tree()
    return all(np.isfinite(array).all() for array in model.values())


@pytest.mark.parametrize("form", each_form())
@settings(max_examples=2)
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
    "one-sample classes": ([[0, 1, 2], [1, 2, 3]], 1, 0.3),
    "one-class silos": ([[0] * 6, [1] * 6, [2] * 6], 1, 0.3),
    "singular covariance": ([[0, 0, 1, 1], [0, 0, 1, 1]], 1, 0.0),
    "more clusters than distributions": ([[0, 1]] * 4, 1, 0.3),
}


DISCLOSURE = {
    "a class below the minimum everywhere": ([[0] * 6 + [3], [1] * 6 + [3], [2] * 6], 5, 0.3),
    "no class may be disclosed": ([[0, 1, 2], [3, 3, 3]], 1000, 0.3),
}
"""Partitions for forms whose silos tell something of classes, which the minimum is for."""


def tells_of_classes(form: str) -> bool:
    steps = registry.bind(form_spec(form, ["a", "b"])).steps().values()
    return any(payload.kind != "model" for step in steps for payload in step.payloads)


def cornered_forms() -> Iterator[ParameterSet]:
    """Every first form of a method in every corner, every other one in one, in turn.

    What is not thorough are two corners of each first form, so that each corner has a third of the methods and more.
    """
    corners = list(CORNERS)
    for number, form in enumerate(FORMS):
        turn = [corners[(number + step) % len(corners)] for step in (0, 2)]
        first = form in FIRST_FORMS.values()
        for corner in corners if first else turn[:1]:
            marks = [] if first and corner in turn else [pytest.mark.thorough]
            yield pytest.param(form, corner, id=f"{form}-{corner}", marks=marks)


@pytest.mark.parametrize(("form", "corner"), list(cornered_forms()))
def test_corners(form: str, corner: str) -> None:
    assert finite(form, *CORNERS[corner])


@pytest.mark.parametrize("corner", DISCLOSURE)
@pytest.mark.parametrize("form", each_form(filter(tells_of_classes, FORMS)))
def test_what_may_not_be_told_of_classes(form: str, corner: str) -> None:
    assert finite(form, *DISCLOSURE[corner])
