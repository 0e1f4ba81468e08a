"""What keeps a guard from going on stands in the job's status while it says so."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from fedsilo.engine.status import StatusSource
from fedsilo.wire import sign_request
from fedsilo_aggregator import http
from fedsilo_aggregator.http import AggregatorService
from tests.federate import job_spec, open_engine, silo_key


async def test_a_guards_word_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(tmp_path, job_spec("fedavg", 2))
    silo, other = engine.identity.silos[:2]
    keys = {name: silo_key(name).verify_key for name in engine.identity.silos}
    service = AggregatorService(engine, keys)
    source = StatusSource(engine, {}, {}, hindrances=service.hindrances)
    path = f"/v1/jobs/{engine.identity.uid}/heartbeat"

    def hindrances() -> dict[str, str | None]:
        return {f"{one.namespace}/{one.name}": one.hindrance for one in source.status("").silos}

    async with TestServer(service.application()) as server, ClientSession(server.make_url("/")) as session:

        async def say(content: Any) -> int:
            body = json.dumps(content).encode()
            proof = sign_request(
                silo_key(silo),
                job=engine.identity.uid,
                sender=silo,
                method="POST",
                path=path,
                body=body,
                now=time.time(),
            )
            async with session.post(path, data=body, headers={"Authorization": proof}) as answer:
                return answer.status

        assert await say({"state": "StorageFull"}) == 204
        assert hindrances() == {silo: "StorageFull", other: None}
        assert await say({"state": None}) == 204
        assert hindrances() == {silo: None, other: None}
        for wrong in ({"state": "Bored"}, {"state": "StorageFull", "message": "x"}, ["StorageFull"], {}):
            assert await say(wrong) == 400
        assert await say({"state": "AuditFull"}) == 204
        assert hindrances()[silo] == "AuditFull"
        monkeypatch.setattr(http, "HEARD_SECONDS", -1.0)
        assert hindrances()[silo] is None, "a guard that is silent says nothing"
