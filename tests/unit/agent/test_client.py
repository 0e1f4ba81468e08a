"""The guard asks again for as long as nobody answers, whatever the reason, and without a flood of words."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from fedsilo.errors import Problem
from fedsilo.wire import SigningKey
from fedsilo_agent.guard.client import AggregatorClient, AggregatorUnavailable, Peer

HOUR = 3600.0
ADDRESS = ConnectionKey("aggregator", 8443, True, True, None, None, None)


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def client() -> AggregatorClient:
    return AggregatorClient(Peer("https://aggregator:8443", "", "uid", "silos/north", SigningKey.generate()))


def answered_after(clock: Clock, seconds: float, error: Exception) -> Callable[[], Awaitable[str]]:
    async def once() -> str:
        if clock.now < seconds:
            raise error
        return "a task"

    return once


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("nobody listens"),
        aiohttp.ClientConnectorDNSError(ADDRESS, OSError("name or service not known")),
        aiohttp.ServerDisconnectedError(),
        TimeoutError(),
        AggregatorUnavailable("status 503 Service AggregatorUnavailable"),
        Problem("storage-full", "no space"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_aggregator_that_is_away_for_an_hour_is_found_again(
    clock: Clock, client: AggregatorClient, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    with caplog.at_level(logging.WARNING):
        found = await client._retry("task", answered_after(clock, HOUR, error))
    assert found == "a task"
    assert clock.now < HOUR + 2
    assert all(0.1 <= pause <= 2 for pause in clock.pauses)
    assert max(clock.pauses[:1]) <= 0.2, "a short interruption is over soon"
    assert len(set(clock.pauses)) > 100, "guards that lost the same aggregator do not come back in step"
    assert 50 < len(caplog.records) <= 61, "said once a minute"


async def test_another_reason_is_reported_at_once(
    clock: Clock, client: AggregatorClient, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = iter(["no route", "no route", "refused", "refused"])

    async def once() -> str:
        reason = next(reasons, None)
        if reason is not None:
            raise OSError(reason)
        return "a task"

    with caplog.at_level(logging.WARNING):
        await client._retry("task", once)
    assert [record.args[1] for record in caplog.records if record.args] == [  # type: ignore[index]
        "OSError: no route",
        "OSError: refused",
    ]


async def test_a_final_refusal_is_no_reason_to_ask_again(clock: Clock, client: AggregatorClient) -> None:
    refusal = Problem("wrong-job", "another job")
    with pytest.raises(Problem, match="another job"):
        await client._retry("task", answered_after(clock, HOUR, refusal))
    assert clock.pauses == []
