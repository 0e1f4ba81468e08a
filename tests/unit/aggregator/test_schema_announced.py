"""A silo announces what its data are called, and is answered when it is known whether all agree."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from fedsilo.api.data import DataSpec
from fedsilo.data.schema import MAX_SCHEMA_BYTES, Schema
from fedsilo.errors import Problem
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.readiness.statement import MAX_READINESS_BYTES, readiness_body
from fedsilo_aggregator import http
from fedsilo_aggregator.http import BODY, SILO, AggregatorService
from fedsilo_aggregator.request_fields import small_body

ANNOUNCED_SCHEMA = Schema(classes=("cat", "dog"))
HELD_SECONDS = 60


class Engine:
    """A job of two silos, whose schemata agree where they are equal."""

    identity = SimpleNamespace(uid="job")
    data = DataSpec(dataset="scans", classes=2, input_shape=(1,), check="refuse")

    def __init__(self) -> None:
        self.announced: dict[str, Schema] = {}
        self.heard: set[str] = set()
        self.findings: dict[str, tuple[AnnouncedFinding, ...]] = {}

    def announce(self, silo: str, schema: Schema) -> None:
        self.announced[silo] = schema

    def report_readiness(
        self, silo: str, schema: Schema | None, findings: tuple[AnnouncedFinding, ...]
    ) -> None:
        self.findings[silo] = findings
        self.announce(silo, schema or Schema())

    def is_ready(self, heard: Collection[str], waited: float) -> bool:
        return self.schemata_agree(heard, waited)

    def schemata_agree(self, heard: Collection[str], waited: float) -> bool:
        self.heard = set(heard)
        if len(set(self.announced.values())) > 1:
            raise Problem("schema-mismatch", "they differ")
        return len(self.announced) == 2


def announcing(
    service: AggregatorService, silo: str, schema: Schema, wait: int = HELD_SECONDS
) -> asyncio.Task[web.Response]:
    request = make_mocked_request("POST", f"/v1/jobs/job/schema?wait={wait}")
    request[SILO], request[BODY] = silo, schema.to_json()
    request.protocol.transport = asyncio.Transport()
    return asyncio.create_task(service._schema(request))


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> AggregatorService:
    monkeypatch.setattr(http, "ABANDONED_SECONDS", 0.01)
    return AggregatorService(Engine(), {})  # type: ignore[arg-type]


async def test_the_first_waits_for_the_others(service: AggregatorService) -> None:
    service.last_seen["a/a"] = service.last_seen["a/b"] = float("inf")
    first = announcing(service, "a/a", ANNOUNCED_SCHEMA)
    done, _ = await asyncio.wait({first}, timeout=0.05)
    assert not done
    assert (await announcing(service, "a/b", ANNOUNCED_SCHEMA)).status == 204
    assert (await first).status == 204
    engine: Any = service.engine
    assert (engine.announced, engine.heard) == (
        {"a/a": ANNOUNCED_SCHEMA, "a/b": ANNOUNCED_SCHEMA},
        {"a/a", "a/b"},
    )


async def test_it_is_asked_again_after_its_time(service: AggregatorService) -> None:
    assert (await announcing(service, "a/a", ANNOUNCED_SCHEMA, wait=0)).status == 202


async def test_both_are_told_that_they_differ(service: AggregatorService) -> None:
    first = announcing(service, "a/a", ANNOUNCED_SCHEMA)
    await asyncio.sleep(0)
    second = announcing(service, "a/b", Schema(classes=("dog", "cat")))
    for answer in (first, second):
        with pytest.raises(Problem, match="schema-mismatch: they differ"):
            await answer


async def test_what_is_no_schema_is_refused(service: AggregatorService) -> None:
    request = make_mocked_request("POST", "/v1/jobs/job/schema")
    for body in (b"", b"[]", b'{"classes": 3}', b'{"rows": 5}'):
        request[SILO], request[BODY] = "a/a", body
        with pytest.raises(Problem, match="malformed: schema"):
            await service._schema(request)
    engine: Any = service.engine
    assert engine.announced == {}


@pytest.mark.parametrize(
    ("path", "limit"),
    [("schema", f"a schema is at most {MAX_SCHEMA_BYTES}"), ("readiness", f"at most {MAX_READINESS_BYTES}")],
)
async def test_its_length_is_bounded(path: str, limit: str) -> None:
    class Content:
        async def iter_any(self) -> Any:
            for _ in range(2 * MAX_SCHEMA_BYTES >> 16):
                yield b"x" * (1 << 16)

    payload: Any = Content()
    request = make_mocked_request("POST", f"/v1/jobs/job/{path}", payload=payload)
    with pytest.raises(Problem, match=f"too-long: .*{limit} bytes"):
        await small_body(request)


def telling(
    service: AggregatorService, silo: str, body: bytes, wait: int = HELD_SECONDS
) -> asyncio.Task[web.Response]:
    request = make_mocked_request("POST", f"/v1/jobs/job/readiness?wait={wait}")
    request[SILO], request[BODY] = silo, body
    request.protocol.transport = asyncio.Transport()
    return asyncio.create_task(service._readiness(request))


async def test_a_silo_says_how_its_data_are_and_waits_for_the_others(service: AggregatorService) -> None:
    copies = (AnnouncedFinding("Duplicates", count=9),)
    first = telling(service, "a/a", readiness_body(ANNOUNCED_SCHEMA, copies))
    await asyncio.sleep(0)
    assert (await telling(service, "a/c", readiness_body(ANNOUNCED_SCHEMA, ()), wait=0)).status == 204
    assert (await first).status == 204
    engine: Any = service.engine
    assert engine.findings == {"a/a": copies, "a/c": ()}


async def test_what_says_nothing_of_data_is_refused(service: AggregatorService) -> None:
    for body in (b"", b"[]", b'{"schema": {}}', b'{"findings": [{"code": "Patient"}]}'):
        with pytest.raises(Problem, match="malformed: "):
            await telling(service, "a/a", body)
    engine: Any = service.engine
    engine.data = DataSpec(dataset="scans", classes=2, input_shape=(1,))
    with pytest.raises(Problem, match="malformed: readiness: this job asks for no check"):
        await telling(service, "a/a", readiness_body(ANNOUNCED_SCHEMA, ()))
    assert engine.findings == {}
