"""A request that waits for the next task ends with its connection, and no request waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from fedsilo.errors import Problem
from fedsilo_aggregator import http
from fedsilo_aggregator.http import SILO, AggregatorService
from fedsilo_aggregator.rounds import spare_collector


class Engine:
    """A job that has no task now."""

    identity = SimpleNamespace(uid="job")

    def task(self, silo: str) -> None:
        """The silo's next task, which is None."""


def held_request(
    service: AggregatorService, transport: Any
) -> tuple[web.Request, asyncio.Task[web.Response]]:
    request = make_mocked_request("GET", "/v1/jobs/job/task?after=&wait=60")
    request[SILO] = "a/a"
    request.protocol.transport = transport
    return request, asyncio.create_task(service._task(request))


async def test_a_held_request_whose_connection_ends_is_not_held_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ABANDONED_SECONDS", 0.01)
    service = AggregatorService(Engine(), {})  # type: ignore[arg-type]
    request, answer = held_request(service, object())
    done, _ = await asyncio.wait({answer}, timeout=0.1)
    assert not done
    request.protocol.transport = None
    assert (await asyncio.wait_for(answer, 5)).status == 204


def test_the_collector_passes_over_nothing_that_the_start_has_made() -> None:
    made = [object()]
    try:
        spare_collector()
        assert not any(found is made for found in gc.get_objects())
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


async def test_a_refusal_leaves_no_garbage_that_holds_a_body() -> None:
    service = AggregatorService(Engine(), {})  # type: ignore[arg-type]
    refused: list[weakref.ref[Problem]] = []

    def problem() -> Problem:
        made = Problem("malformed", "for a body of a megabyte")
        refused.append(weakref.ref(made))
        return made

    async def handler(_request: web.Request) -> web.StreamResponse:
        raise problem()

    gc.disable()
    try:
        response = await service._problems(make_mocked_request("PATCH", "/"), handler)
        assert response.status == 400
        assert refused[0]() is None
    finally:
        gc.enable()
