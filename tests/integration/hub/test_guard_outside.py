"""A guard in an institution: through its proxy, and undeceived by what answers in place of the aggregator."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from fedsilo.errors import Problem
from fedsilo.http.refusals import problem_response
from fedsilo.wire import SigningKey
from fedsilo_agent.guard.__main__ import take_proxy
from fedsilo_agent.guard.client import AggregatorAddress, AggregatorClient
from tests.integration.hub.outside import HUB, ConnectProxy, Handler, Hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Hub(tmp_path)


@pytest.fixture
def update(tmp_path: Path) -> Path:
    path = tmp_path / "update"
    path.write_bytes(bytes(range(256)) * 20_000)
    return path


@asynccontextmanager
async def guard(url: str, ca: str | None) -> AsyncIterator[AggregatorClient]:
    async with AggregatorClient(
        AggregatorAddress(url, ca, "a-job", "silo-north/north", SigningKey.generate())
    ) as client:
        yield client


class Aggregator:
    """Takes updates, as the aggregator does."""

    def __init__(self) -> None:
        self.received = bytearray()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD":
            return web.Response(headers={"Upload-Complete": "?0", "Upload-Offset": str(len(self.received))})
        self.received += await request.read()
        return web.json_response({}, status=201)


async def test_updates_leave_through_the_proxy_of_the_environment(
    hub: Hub, update: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, aggregator = ConnectProxy(login="hospital:a secret"), Aggregator()
    async with hub.serving(aggregator), proxy.serving():
        monkeypatch.setenv("HTTPS_PROXY", f"http://hospital:a%20secret@127.0.0.1:{proxy.port}")
        async with guard(hub.url, hub.ca) as client:
            await client.upload("r1", update, hashlib.sha256(update.read_bytes()).hexdigest())
    assert aggregator.received == update.read_bytes()
    assert set(proxy.asked) == {f"{HUB}:{hub.port}"}


async def test_updates_leave_through_the_proxy_that_a_file_names(
    hub: Hub, update: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://none.invalid:1")
    proxy, aggregator = ConnectProxy(login="hospital:a secret"), Aggregator()
    async with hub.serving(aggregator), proxy.serving():
        (tmp_path / "proxy").write_text(f"http://hospital:a%20secret@127.0.0.1:{proxy.port}")
        take_proxy(tmp_path / "proxy")
        async with guard(hub.url, hub.ca) as client:
            await client.upload("r1", update, hashlib.sha256(update.read_bytes()).hexdigest())
    assert aggregator.received == update.read_bytes()


async def test_without_an_authority_the_systems_count(
    hub: Hub, update: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = Aggregator()
    trusted = tmp_path / "authorities.pem"
    trusted.write_bytes(hub.authority.cert_pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    async with hub.serving(aggregator), guard(f"https://127.0.0.1:{hub.port}", None) as client:
        await client.upload("r1", update, hashlib.sha256(update.read_bytes()).hexdigest())
    assert aggregator.received == update.read_bytes()


async def upload_problem(hub: Hub, handler: Handler, update: Path, caplog: pytest.LogCaptureFixture) -> str:
    """What the guard says of an update that it tries to send again and again."""
    with caplog.at_level(logging.WARNING, "fedsilo.guard"):
        async with hub.serving(handler), guard(f"https://127.0.0.1:{hub.port}", hub.ca) as client:
            sending = asyncio.ensure_future(client.upload("r1", update, "0" * 64))
            while len(hub.asked) < 3 and not sending.done():
                await asyncio.sleep(0.001)
            assert not sending.done(), "nothing has taken the update"
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    assert all("Traceback" not in record.getMessage() for record in caplog.records)
    return caplog.records[0].getMessage()


@pytest.mark.parametrize("method", ["HEAD", "PATCH"])
async def test_a_web_page_is_no_receipt(
    hub: Hub, update: Path, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async def portal(request: web.Request) -> web.StreamResponse:
        await request.read()
        if request.method != method:
            return web.Response(headers={"Upload-Complete": "?0", "Upload-Offset": "0"})
        return web.Response(
            text="<html>Log in</html>", content_type="text/html", headers={"Upload-Complete": "?1"}
        )

    text = await upload_problem(hub, portal, update, caplog)
    assert "status 200 with a web page" in text
    assert "compare the URL with the hub's" in text


@pytest.mark.parametrize(("minutes", "side"), [(20, "ahead of"), (-20, "behind")])
async def test_a_clock_that_is_off_is_named_and_nothing_is_lost(
    hub: Hub, update: Path, caplog: pytest.LogCaptureFixture, minutes: int, side: str
) -> None:
    async def at_another_time(_: web.Request) -> web.StreamResponse:
        answer = problem_response(Problem("proof-expired", "it is another time here"))
        answer.headers["Date"] = formatdate(time.time() - 60 * minutes, usegmt=True)
        return answer

    text = await upload_problem(hub, at_another_time, update, caplog)
    assert f"this machine's clock is 20 min {side} that of 127.0.0.1:{hub.port}" in text
    assert "set it by NTP" in text
