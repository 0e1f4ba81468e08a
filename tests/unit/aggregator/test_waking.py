"""What wakes whom at the aggregator, and that nothing is done more often than somebody can see."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.wire import FINISH, sign_request
from fedsilo_aggregator import rounds
from fedsilo_aggregator.http import AggregatorService
from fedsilo_aggregator.lost_silos import LostSilosFile
from tests.federate import job_spec, open_engine, silo_key
from tests.unit.aggregator.test_drain import Service
from tests.unit.aggregator.test_held_requests import held_request


class Engine:
    """A job that has no task now, and counts who asks for one."""

    identity = SimpleNamespace(uid="job")
    asked = 0

    def task(self, silo: str) -> None:
        self.asked += 1


def serving(engine: RoundEngine) -> AggregatorService:
    return AggregatorService(engine, {name: silo_key(name).verify_key for name in engine.identity.silos})


def proof(engine: RoundEngine, method: str, path: str) -> dict[str, str]:
    job, silo = engine.identity.uid, engine.identity.silos[0]
    signed = sign_request(
        silo_key(silo), job=job, sender=silo, method=method, path=path, body=None, now=time.time()
    )
    return {"Authorization": signed}


async def test_an_update_wakes_no_other_silo_and_the_next_task_wakes_all() -> None:
    engine = Engine()
    service = AggregatorService(engine, {})  # type: ignore[arg-type]
    answers = [held_request(service, object())[1] for _ in range(3)]
    await asyncio.sleep(0)
    service.uploads._changed()
    await asyncio.wait_for(service.wait_for_change(60), 5)
    assert engine.asked == 3
    service.announce_change()
    await asyncio.wait_for(service.wait_for_change(60), 5)
    assert engine.asked == 6
    for answer in answers:
        answer.cancel()


async def test_what_happens_while_nobody_waits_is_not_missed() -> None:
    service = AggregatorService(Engine(), {})  # type: ignore[arg-type]
    service.uploads._changed()
    await asyncio.wait_for(service.wait_for_change(60), 5)


async def test_a_silo_that_knows_the_end_wakes_the_aggregator(tmp_path: Path) -> None:
    engine = open_engine(tmp_path, job_spec("fedavg", 2))
    service = serving(engine)
    engine.fail(engine.identity.silos[0], "r00001-train-s0", "DataInvalid", "no data")
    engine.settle()
    waiting = asyncio.create_task(service.wait_for_change(60))
    path = f"/v1/jobs/{engine.identity.uid}/task?after={FINISH}&wait=0"
    async with TestServer(service.application()) as server, ClientSession(server.make_url("/")) as session:
        await session.get(path, headers=proof(engine, "GET", path))
        await asyncio.wait_for(waiting, 5)


async def test_asking_how_much_of_an_update_is_there_leaves_the_connection_open(tmp_path: Path) -> None:
    engine, made = open_engine(tmp_path, job_spec("fedavg", 2)), []

    async def count(*_: Any) -> None:
        made.append(1)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(count)
    path = f"/v1/jobs/{engine.identity.uid}/updates/r00001-train-s0"
    async with (
        TestServer(serving(engine).application()) as server,
        ClientSession(server.make_url("/"), trace_configs=[trace]) as session,
    ):
        for _ in range(3):
            headers = proof(engine, "HEAD", path) | {"Upload-Digest": "0" * 64}
            async with session.head(path, headers=headers) as response:
                assert response.headers["Upload-Offset"] == "0"
    assert len(made) == 1


@pytest.mark.parametrize(("seconds", "most"), [(1e6, 2), (0.0, 50)])
async def test_statuses_are_no_more_frequent_than_anybody_looks(
    monkeypatch: pytest.MonkeyPatch, seconds: float, most: int
) -> None:
    monkeypatch.setattr(rounds, "STATUS_SECONDS", seconds)
    service: Any = Service()
    service.engine.awaits_answers = True
    sink = Mock()
    work = asyncio.ensure_future(rounds.run_rounds(service, Mock(), sink, LostSilosFile(None)))
    while service.ticks < most:
        await asyncio.sleep(0)
    service.engine.ended = True
    await asyncio.wait_for(work, 10)
    assert len(sink.publish.mock_calls) == (most if most == 2 else service.ticks + 1)
