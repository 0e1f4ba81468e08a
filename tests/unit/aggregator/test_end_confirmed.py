"""The answer that tells a silo the end can be lost on the way: it counts as told once the silo says so."""

from __future__ import annotations

import time
from pathlib import Path

from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.wire import FINISH, open_task, sign_request
from fedsilo_aggregator.http import AggregatorService
from tests.federate import TASK_KEY, job_spec, open_engine, silo_key


async def ask(session: ClientSession, engine: RoundEngine, silo: str, after: str) -> bytes:
    path = f"/v1/jobs/{engine.identity.uid}/task?after={after}&wait=0"
    job, key = engine.identity.uid, silo_key(silo)
    proof = sign_request(key, job=job, sender=silo, method="GET", path=path, body=None, now=time.time())
    async with session.get(path, headers={"Authorization": proof}) as response:
        return await response.read()


async def test_a_silo_that_was_sent_the_end_is_waited_for_until_it_says_that_it_has_it(
    tmp_path: Path,
) -> None:
    engine = open_engine(tmp_path, job_spec("fedavg", 2))
    service = AggregatorService(engine, {name: silo_key(name).verify_key for name in engine.identity.silos})
    silo, other = engine.identity.silos[:2]
    async with TestServer(service.application()) as server, ClientSession(server.make_url("/")) as session:
        await ask(session, engine, silo, after=FINISH)
        assert not service.finished, "the job goes on, whatever a silo says"
        engine.fail(silo, "r00001-train-s0", "DataInvalid", "no data")
        engine.settle()
        assert engine.ended
        for _ in range(2):
            assert open_task(await ask(session, engine, silo, after=""), TASK_KEY.verify_key).task == FINISH
            assert not service.finished
        await ask(session, engine, silo, after=FINISH)
        await ask(session, engine, other, after="")
    assert service.finished == {silo}
