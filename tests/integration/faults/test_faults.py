"""Faults of every kind, with real processes: the same model and states, or an error that names the file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.campaign import faults
from tests.faults.fault import FLIPPED_BIT, KILL_BEFORE, KINDS, POWER_CUT, Fault, Place, kinds_of
from tests.faults.laboratory import Laboratory
from tests.faults.manifests import METHODS
from tests.faults.outcome import NAMED_ERROR, SAME, Violation
from tests.tiers import mark_thorough

DEFECTIVE_MODULE = "tests.integration.faults.defective"

SEED = 20
"""Seed of the sample, which is the same each time."""

CERTAIN_SEED = 1
"""A power cut of this seed leaves nothing that was not synced."""


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with Laboratory.open_laboratory(tmp_path_factory.mktemp("faults")) as opened:
        yield opened


@pytest.mark.parametrize("kind", mark_thorough(KINDS, [KILL_BEFORE]))
def test_nothing_is_lost_doubled_or_changed(kind: str, laboratory: Laboratory) -> None:
    """Two faults of the kind; a step that a run does not come by gives its turn to another."""
    method = list(METHODS)[list(KINDS).index(kind) % len(METHODS)]
    drawn = (
        fault for fault in faults({method: laboratory.undisturbed_run(method)}, SEED) if fault.kind == kind
    )
    outcomes: list[str] = []
    while len(outcomes) < 2:
        fault = next(drawn)
        outcome = laboratory.attempt(fault)
        if outcome in (SAME, NAMED_ERROR):
            outcomes.append(outcome)


@pytest.mark.thorough
def test_damaged_private_state_is_an_error_that_names_it(laboratory: Laboratory) -> None:
    assert laboratory.attempt(flipped_private_state(laboratory)) == NAMED_ERROR


@pytest.mark.thorough
def test_private_state_that_is_used_unchecked_is_found(laboratory: Laboratory) -> None:
    with pytest.raises(Violation, match=r"model|history|departures|private state"):
        laboratory.attempt(flipped_private_state(laboratory), DEFECTIVE_MODULE)


@pytest.mark.thorough
def test_a_missing_sync_of_a_directory_is_found(laboratory: Laboratory) -> None:
    fault = Fault(
        "fedphp", POWER_CUT, place(laboratory, "north guard", "sync audit/log.jsonl", 5), CERTAIN_SEED
    )
    assert laboratory.attempt(fault) == SAME
    with pytest.raises(Violation, match=r"model|history|departures|acknowledged"):
        laboratory.attempt(fault, DEFECTIVE_MODULE)


def flipped_private_state(laboratory: Laboratory) -> Fault:
    """One bit of the state that round 2 begins with, which is a file with the silo's own model."""
    step = "rename state/*.tmp -> state/personal.safetensors"
    return Fault("fedphp", FLIPPED_BIT, place(laboratory, "north trainer", step, 1), seed=0)


def place(laboratory: Laboratory, role: str, step: str, occurrence: int) -> Place:
    """A step that the method's undisturbed run has taken."""
    found = Place(role, step, occurrence)
    assert found in laboratory.undisturbed_run("fedphp").places
    return found


@pytest.mark.thorough
def test_steps_are_named_so_that_they_can_be_found_again(laboratory: Laboratory) -> None:
    places = laboratory.undisturbed_run("fedphp").places
    assert all(Place.parse(str(place)) == place for place in places)
    assert {kind for place in places for kind in kinds_of(place)} == KINDS.keys() - {"network-cut"}
