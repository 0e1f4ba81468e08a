"""After a restart, a silo gets a task that it has again, until it sends: the response may be lost."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.wire import open_task, sign_request
from fedsilo_aggregator import http
from fedsilo_aggregator.http import AggregatorService
from tests.federate import TASK_KEY, job_spec, open_engine, silo_key

WAIT = "0.05"


@dataclass
class Silo:
    """A silo and the aggregator that it talks to."""

    session: ClientSession
    engine: RoundEngine
    reference: str

    async def task(self, after: str = "", wait: str = WAIT) -> str | None:
        """Name of the task that it is given."""
        status, body, _ = await self.send("GET", f"task?after={after}&wait={wait}")
        return None if status == 204 else open_task(body, TASK_KEY.verify_key).task

    async def send(self, method: str, what: str, **options: Any) -> tuple[int, bytes, str]:
        path = f"/v1/jobs/{self.engine.identity.uid}/{what}"
        proof = sign_request(
            silo_key(self.reference),
            job=self.engine.identity.uid,
            sender=self.reference,
            method=method,
            path=path,
            body=None,
            now=time.time(),
        )
        headers = {"Authorization": proof, **options.pop("headers", {})}
        async with self.session.request(method, path, headers=headers, **options) as response:
            return response.status, await response.read(), response.headers.get("Problem", "")


@pytest.fixture
async def silo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Silo]:
    monkeypatch.setattr(http, "REPEAT_SECONDS", float(WAIT))
    engine = open_engine(tmp_path, job_spec("fedavg", 2))
    keys = {name: silo_key(name).verify_key for name in engine.identity.silos}
    app: web.Application = AggregatorService(engine, keys).application()
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as session:
        yield Silo(session, engine, engine.identity.silos[0])


async def test_a_task_of_before_the_start_is_given_at_once_and_then_in_place_of_nothing(silo: Silo) -> None:
    name = "r00001-train-s0"
    assert await silo.task(after=name, wait="0") == name
    assert await silo.task(after=name, wait="0") is None, (
        "a request that does not wait would come again at once"
    )
    assert await silo.task(after=name) == name
    assert await silo.task(after=name) == name


async def test_that_ends_when_the_silo_sends(silo: Silo) -> None:
    name = "r00001-train-s0"
    assert await silo.task(after=name) == name
    part = {"Upload-Offset": "7", "Upload-Length": "9", "Upload-Digest": "0" * 64}
    assert (await silo.send("PATCH", f"updates/{name}", headers=part, data=b"ab"))[2] == "offset-mismatch"
    assert await silo.task(after=name) is None


async def test_a_task_that_this_process_gave_first_is_given_once(silo: Silo) -> None:
    """Who names it has received it."""
    name = "r00001-train-s0"
    assert await silo.task(after="") == name
    assert await silo.task(after="") == name
    assert await silo.task(after=name) is None
