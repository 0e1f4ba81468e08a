"""A failure that a silo reports is recorded while others are served."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from fedsilo.wire import sign_request
from fedsilo_aggregator.http import AggregatorService
from tests.federate import job_spec, open_engine, silo_key


async def test_a_disk_that_takes_its_time_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(tmp_path, job_spec("fedavg", 2))
    begun, asked = threading.Event(), threading.Event()
    fail = engine.fail

    def slowly(silo: str, task: str, reason: str, message: str) -> bool:
        begun.set()
        assert asked.wait(30)
        return fail(silo, task, reason, message)

    monkeypatch.setattr(engine, "fail", slowly)
    silo = engine.identity.silos[0]
    task = engine.task(silo)
    assert task is not None
    path = f"/v1/jobs/{engine.identity.uid}/failures/{task.id}"
    body = json.dumps({"reason": "DataInvalid", "message": "no data"}).encode()
    proof = sign_request(
        silo_key(silo),
        job=engine.identity.uid,
        sender=silo,
        method="POST",
        path=path,
        body=body,
        now=time.time(),
    )
    keys = {name: silo_key(name).verify_key for name in engine.identity.silos}
    app = AggregatorService(engine, keys).application()
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as session:
        async with asyncio.TaskGroup() as tasks:
            failing = tasks.create_task(session.post(path, data=body, headers={"Authorization": proof}))
            assert await asyncio.to_thread(begun.wait, 30)
            async with session.get("/healthz") as healthy:
                assert healthy.status == 200
            asked.set()
        failed = failing.result()
        assert failed.status == 204
    assert engine.failure is not None
