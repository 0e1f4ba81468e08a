"""A guard that cannot go on says so for as long as it lasts, and once that it is over."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from fedsilo.api.conditions import GuardState
from fedsilo.errors import Problem
from fedsilo_agent.guard import heartbeat
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.heartbeat import Heartbeat


class ListeningAggregator:
    """An aggregator that notes what it is told."""

    def __init__(self, problem: Problem | None = None) -> None:
        self.states: list[GuardState | None] = []
        self.problem = problem

    async def tell_state(self, state: GuardState | None) -> None:
        self.states.append(state)
        if self.problem is not None:
            raise self.problem


def heartbeat_to(told: ListeningAggregator) -> Heartbeat:
    return Heartbeat(cast(AggregatorClient, told))


async def until_silent(told: ListeningAggregator) -> None:
    count = -1
    while count != len(told.states):
        count = len(told.states)
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "REPEAT_SECONDS", 0.0)


async def test_a_state_is_told_again_until_it_is_over() -> None:
    told = ListeningAggregator()
    found = heartbeat_to(told)
    with found.telling(GuardState.STORAGE_FULL):
        while len(told.states) < 3:
            await asyncio.sleep(0)
    await until_silent(told)
    assert told.states == [GuardState.STORAGE_FULL] * (len(told.states) - 1) + [None]


async def test_the_gravest_state_is_told_and_then_the_other() -> None:
    told = ListeningAggregator()
    found = heartbeat_to(told)
    with found.telling(GuardState.AUDIT_FULL):
        with found.telling(GuardState.STORAGE_FULL):
            states = [found.state]
        states.append(found.state)
    assert [*states, found.state] == [GuardState.STORAGE_FULL, GuardState.AUDIT_FULL, None]


async def test_an_aggregator_that_does_not_know_it_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told = ListeningAggregator(Problem("malformed", "Not Found"))
    with heartbeat_to(told).telling(GuardState.STORAGE_FULL):
        await until_silent(told)
    assert told.states == [GuardState.STORAGE_FULL]
    assert "does not take what keeps this guard from going on" in caplog.text
