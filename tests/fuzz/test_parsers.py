"""A small part of the campaign: every saved input, and some hundred fresh ones for each parser."""

from __future__ import annotations

import os
import random
from random import SystemRandom

import pytest

from tests.fuzz.__main__ import shortened_input
from tests.fuzz.corpus import saved_inputs
from tests.fuzz.targets import targets
from tests.tiers import mark_thorough

TARGETS = targets()

SEED = 0 if os.environ.get("CI") else SystemRandom().randrange(1 << 32)
"""Seed of the inputs that are drawn: fresh ones each time, where somebody can look at a failure."""

SLOW = {"manifest", "directory of an aggregator", "directory of a run", "volume of a silo", "csv"}
"""Targets whose inputs take longest, each with a quicker one of its kind."""


@pytest.mark.parametrize("name", TARGETS)
def test_an_honest_input_is_taken(name: str) -> None:
    """The first seed is taken: without it the rest would be refused at the first byte, and show nothing."""
    TARGETS[name].parse(TARGETS[name].seeds[0])


@pytest.mark.parametrize("name", TARGETS)
def test_saved_inputs_are_refused_or_taken(name: str) -> None:
    for path in saved_inputs(TARGETS[name]):
        TARGETS[name].try_(path.read_bytes())


@pytest.mark.parametrize("name", mark_thorough(TARGETS, TARGETS.keys() - SLOW))
def test_changed_inputs_are_refused_or_taken(name: str) -> None:
    """Drawn as in the campaign: hypothesis takes longer to draw most inputs than they take to be parsed."""
    target, generator = TARGETS[name], random.Random(f"{SEED} {name}")
    for _ in range(target.examples):
        data = target.draw(target.seeds, generator.randrange)
        try:
            target.try_(data)
        except Exception as defect:
            defect.add_note(f"seed {SEED}; this is enough of the input: {shortened_input(target, data)!r}")
            raise
