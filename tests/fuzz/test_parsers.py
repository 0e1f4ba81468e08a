"""A small part of the campaign: every saved input, and some hundred fresh ones for each parser."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import saved_inputs
from tests.fuzz.targets import targets

TARGETS = targets()


@pytest.mark.parametrize("name", TARGETS)
def test_an_honest_input_is_taken(name: str) -> None:
    """The first seed is taken: without it the rest would be refused at the first byte, and show nothing."""
    TARGETS[name].parse(TARGETS[name].seeds[0])


@pytest.mark.parametrize("name", TARGETS)
def test_saved_inputs_are_refused_or_taken(name: str) -> None:
    for path in saved_inputs(TARGETS[name]):
        TARGETS[name].try_(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs_are_refused_or_taken(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=target.examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.data())
    def parse(data: st.DataObject) -> None:
        target.try_(target.draw(target.seeds, lambda n: data.draw(st.integers(0, n - 1))))

    parse()
