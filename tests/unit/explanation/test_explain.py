"""What a job waits for, as facts; the words are tested where they are written."""

from __future__ import annotations

import pytest

from fedsilo.explanation.explain import WaitState, explain, open_round
from tests.unit.cli.objects import condition, conditions_until, entry, job
from tests.unit.cli.waiting_cases import CASES, running


def test_the_cases_of_the_command_line_are_of_every_state() -> None:
    assert {explain(job).state for job, _ in CASES.values()} == set(WaitState)


@pytest.mark.parametrize(
    ("states", "needed", "has_quorum", "awaited", "failed"),
    [
        ("ARRR", 3, True, ("north",), ()),
        ("AARR", 3, False, ("north", "east"), ()),
        ("ARRF", 3, False, ("north",), ("west",)),
        ("RRII", 2, True, (), ()),
    ],
)
def test_an_open_round_counts_the_silos_that_were_asked(
    states: str, needed: int, has_quorum: bool, awaited: tuple[str, ...], failed: tuple[str, ...]
) -> None:
    found = open_round(running(states))
    assert found is not None
    assert (found.number, found.rounds, found.asked) == (8, 50, 4 - states.count("I"))
    assert (found.needed, found.has_quorum) == (needed, has_quorum)
    assert (found.awaited, found.failed) == (awaited, failed)


@pytest.mark.parametrize("state", ["Awaited", "Reported", "Failed"])
def test_a_silo_that_was_left_out_is_not_asked_whatever_its_state_says(state: str) -> None:
    left_out = entry("north", phase="LeftOut", state=state)
    found = open_round(running("AAAA", silos=[left_out, entry("east", phase="Running", state="Awaited")]))
    assert found is not None
    assert (found.awaited, found.failed, found.answered) == (("east",), (), 0)
    assert (found.asked, found.needed) == (1, 1)


def test_a_job_is_in_its_round_although_an_agent_is_down() -> None:
    down = condition("SilosReady", "False", "OutOfMemory", "silo-east/east: killed for memory")
    path = [item for item in conditions_until("Running") if item["type"] != "SilosReady"]
    found = explain(running("ARRR", conditions=[*path, down]))
    assert found.state == WaitState.IN_ROUND
    assert found.unmet is not None
    assert (found.unmet.condition, found.unmet.reason) == ("SilosReady", "OutOfMemory")


def test_a_change_that_the_operator_has_not_seen_is_reported() -> None:
    assert explain(job(metadata={"generation": 2})).unseen_change
    assert not explain(job()).unseen_change
    assert not explain(job(observedGeneration=None)).unseen_change
