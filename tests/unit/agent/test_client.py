"""The guard asks again for as long as nobody answers, whatever the reason, and without a flood of words."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from fedsilo.errors import Problem
from fedsilo.wire import BlobLink, SigningKey
from fedsilo_agent.guard.client import (
    ANNOUNCEMENT_WAIT_SECONDS,
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    MAX_NEW_REASONS,
    AggregatorAddress,
    AggregatorClient,
)
from fedsilo_agent.guard.response import AggregatorUnavailableError

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
    return AggregatorClient(
        AggregatorAddress("https://aggregator:8443", "", "uid", "silos/north", SigningKey.generate())
    )


def answered_after(clock: Clock, seconds: float, error: Exception) -> Callable[[], Awaitable[str]]:
    async def fetch_task_once() -> str:
        if clock.now < seconds:
            raise error
        return "a task"

    return fetch_task_once


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("nobody listens"),
        aiohttp.ClientConnectorDNSError(ADDRESS, OSError("name or service not known")),
        aiohttp.ServerDisconnectedError(),
        TimeoutError(),
        AggregatorUnavailableError("status 503 Service AggregatorUnavailable"),
        Problem("storage-full", "no space"),
        Problem("unreachable", "no aggregator of job j1 is known here"),
        Problem("too-many-requests", "wait between them"),
    ],
    ids=lambda error: error.code if isinstance(error, Problem) else type(error).__name__,
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

    async def fetch_task_once() -> str:
        reason = next(reasons, None)
        if reason is not None:
            raise OSError(reason)
        return "a task"

    with caplog.at_level(logging.WARNING):
        await client._retry("task", fetch_task_once)
    assert [record.args[1] for record in caplog.records if record.args] == [  # type: ignore[index]
        "OSError: no route",
        "OSError: refused",
    ]


async def test_a_gateway_that_refuses_is_not_taken_for_the_aggregator(
    clock: Clock, client: AggregatorClient
) -> None:
    answered = []

    async def fetch_task_once() -> str:
        answered.append(client.answered)
        if len(answered) < 3:
            raise Problem("unreachable", "the aggregator does not answer")
        return "a task"

    assert await client._retry("task", fetch_task_once) == "a task"
    assert answered == [None, None, None]
    assert client.answered is not None


async def test_a_final_refusal_is_no_reason_to_ask_again(clock: Clock, client: AggregatorClient) -> None:
    refusal = Problem("wrong-job", "another job")
    with pytest.raises(Problem, match="another job"):
        await client._retry("task", answered_after(clock, HOUR, refusal))
    assert clock.pauses == []


async def test_reasons_that_change_all_the_time_are_no_flood(
    clock: Clock, client: AggregatorClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def fetch_task_once() -> None:
        if clock.now < HOUR:
            raise OSError(f"reason {clock.now}")

    await client._retry("task", fetch_task_once)
    assert len(caplog.records) <= 60 * MAX_NEW_REASONS


class Script:
    """The other side of `AggregatorClient._request`: each request meets the next of the answers.

    :ivar asked: method, path and headers of the requests.
    """

    def __init__(self, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str]]] = []
        monkeypatch.setattr(client, "_request", self.request)

    @asynccontextmanager
    async def request(
        self, method: str, _path: str, headers: dict[str, str] | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        self.asked.append((method, headers or {}))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield answer

    def offsets(self) -> list[str]:
        """From where the update was sent each time."""
        return [headers["Upload-Offset"] for method, headers in self.asked if method == "PATCH"]


def has(offset: int) -> Any:
    return SimpleNamespace(headers={"Upload-Complete": "?0", "Upload-Offset": str(offset)})


def body(*pieces: bytes, status: int = 200) -> Any:
    async def iter_any() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    content = SimpleNamespace(iter_any=iter_any)
    return SimpleNamespace(status=status, headers={}, content=content, content_length=None, connection=None)


@pytest.mark.parametrize("code", ["malformed", "too-long", "signature-invalid", "digest-mismatch"])
async def test_a_part_that_the_aggregator_lost_does_not_cost_the_update(
    code: str, clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was refused is the part from before, so all of it is sent once more."""
    update = tmp_path / "r1.update"
    update.write_bytes(bytes(100))
    refusal = Problem(code, "does not hold")
    answers = [refusal, has(60), refusal, has(0), SimpleNamespace(status=201, headers={})]
    script = Script(client, monkeypatch, *answers)
    await client.upload("r1", update, "0" * 64)
    assert script.offsets() == ["60", "0"]


async def test_of_a_new_update_the_offset_is_asked_only_after_a_break(
    clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    update = tmp_path / "r1.update"
    update.write_bytes(bytes(100))
    broken, accepted = aiohttp.ClientConnectionError("broke off"), SimpleNamespace(status=201, headers={})
    script = Script(client, monkeypatch, broken, has(60), accepted)
    await client.upload("r1", update, "0" * 64, new=True)
    assert [method for method, _ in script.asked] == ["PATCH", "HEAD", "PATCH"]
    assert script.offsets() == ["0", "60"]


@pytest.mark.parametrize("code", ["malformed", "not-finite", "digest-mismatch"])
async def test_a_refusal_of_all_of_it_is_final(
    code: str, clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    update = tmp_path / "r1.update"
    update.write_bytes(bytes(100))
    script = Script(client, monkeypatch, has(0), Problem(code, "refused"))
    with pytest.raises(Problem, match=code):
        await client.upload("r1", update, "0" * 64)
    assert script.offsets() == ["0"]


@pytest.mark.parametrize("code", ["already-accepted", "round-closed", "job-finished", "unknown-task"])
async def test_an_update_that_is_not_awaited_is_not_sent_again(
    code: str, clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    update = tmp_path / "r1.update"
    update.write_bytes(bytes(100))
    script = Script(client, monkeypatch, has(60), Problem(code, "too late"))
    with pytest.raises(Problem, match=code):
        await client.upload("r1", update, "0" * 64)
    assert script.offsets() == ["60"]


async def test_a_damaged_part_of_a_blob_is_fetched_again(
    clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = b"0123456789"
    path = tmp_path / hashlib.sha256(content).hexdigest()
    path.with_name(f".{path.name}.part").write_bytes(b"0X2")
    Script(client, monkeypatch, body(b"3456789", status=206), body(content))
    await client.download(BlobLink("model", path.name, 10), path)
    assert path.read_bytes() == content


async def test_a_blob_that_arrives_whole_and_wrong_is_refused(
    clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / hashlib.sha256(b"0123456789").hexdigest()
    Script(client, monkeypatch, body(b"012345678X"))
    with pytest.raises(Problem, match="digest-mismatch"):
        await client.download(BlobLink("model", path.name, 10), path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", [hashlib.sha256(b"").hexdigest(), "0" * 64])
async def test_a_blob_of_no_bytes_is_judged_by_its_digest(
    digest: str, clock: Clock, client: AggregatorClient, tmp_path: Path
) -> None:
    link = BlobLink("model", digest, 0)
    if digest == "0" * 64:
        with pytest.raises(Problem, match="digest-mismatch"):
            await client.download(link, tmp_path / digest)
    else:
        await client.download(link, tmp_path / digest)
        assert (tmp_path / digest).read_bytes() == b""


async def test_a_reason_that_the_aggregator_invents_is_one_bounded_line(
    clock: Clock, client: AggregatorClient, caplog: pytest.LogCaptureFixture
) -> None:
    error = aiohttp.ClientPayloadError("\n2026-01-01 WARNING forged" + "x" * 100_000)
    with caplog.at_level(logging.WARNING):
        await client._retry("task", answered_after(clock, 1, error))
    (record,) = caplog.records
    assert len(record.getMessage()) < 5000
    assert "\n" not in record.getMessage()


class Comparing:
    """Answers so many times that nothing is known yet, each after so many seconds, and then that all agree."""

    def __init__(self, clock: Clock, answers: int, seconds: float) -> None:
        self.clock, self.answers, self.seconds = clock, answers, seconds
        self.asked: list[float] = []

    @asynccontextmanager
    async def request(self, *_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        self.asked.append(self.clock.now)
        self.clock.now += self.seconds
        yield SimpleNamespace(status=204 if len(self.asked) > self.answers else 202)


async def test_an_aggregator_that_does_not_wait_before_it_knows_is_asked_with_pauses(
    clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparing = Comparing(clock, answers=100, seconds=0.0)
    monkeypatch.setattr(client, "_request", comparing.request)
    await client.announce_schema(b"{}")
    assert len(clock.pauses) == 100
    longest = FIRST_RETRY_SECONDS
    for pause in clock.pauses:
        assert longest / 2 <= pause <= longest
        longest = min(2 * longest, LAST_RETRY_SECONDS)


async def test_an_aggregator_that_waits_before_it_answers_is_asked_again_at_once(
    clock: Clock, client: AggregatorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparing = Comparing(clock, answers=3, seconds=ANNOUNCEMENT_WAIT_SECONDS)
    monkeypatch.setattr(client, "_request", comparing.request)
    await client.announce_schema(b"{}")
    assert comparing.asked == [number * ANNOUNCEMENT_WAIT_SECONDS for number in range(4)]
    assert clock.pauses == []
