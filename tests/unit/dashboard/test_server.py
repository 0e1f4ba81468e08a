"""The dashboard's server, asked by a real client."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection

import aiohttp
import pytest
from aiohttp import web

from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.server import JOBS, SECURITY_HEADERS, Access, LocalAccess, serving
from fedsilo.dashboard.snapshot import JobsSnapshot, PageSnapshot
from fedsilo.dashboard.view import overview
from tests.unit.dashboard.snapshots import Calendar, consortium, machine, running


class Site:
    """A dashboard and a client of it."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        port: int,
        feed: Feed[JobsSnapshot],
        snapshots: list[JobsSnapshot],
    ) -> None:
        self.session, self.feed, self._snapshots = session, feed, snapshots
        self.address = f"http://127.0.0.1:{port}"

    def show(self, snapshot: JobsSnapshot) -> None:
        self._snapshots[:] = [snapshot]
        self.feed.notify()

    async def get(self, path: str, **headers: str) -> aiohttp.ClientResponse:
        return await self.session.get(self.address + path, headers=headers)


class Reader:
    """Lets one token see one namespace."""

    async def namespaces(self, request: web.Request, snapshot: PageSnapshot) -> Collection[str] | None:
        if request.headers.get("Authorization") != "Bearer good":
            raise web.HTTPUnauthorized()
        return {"elsewhere"}


async def site(access: Access) -> AsyncIterator[Site]:
    snapshots = [consortium()]
    feed = Feed(lambda: snapshots[0])
    async with serving(feed, access, "127.0.0.1", 0, views=JOBS) as port, aiohttp.ClientSession() as session:
        yield Site(session, port, feed, snapshots)


@pytest.fixture
async def local_site() -> AsyncIterator[Site]:
    async for found in site(LocalAccess()):
        yield found


@pytest.fixture
async def guarded_site() -> AsyncIterator[Site]:
    async for found in site(Reader()):
        yield found


async def test_the_documents_are_those_of_the_view(local_site: Site) -> None:
    response = await local_site.get("/api/jobs")
    assert (response.status, response.headers["Cache-Control"]) == (200, "no-store")
    assert await response.json() == json.loads(json.dumps(overview(consortium())))
    job = await local_site.get("/api/jobs/research/digits")
    assert (await job.json())["name"] == "digits"
    assert (await local_site.get("/api/jobs/research/nobody")).status == 404


async def test_whoever_has_the_document_waits_for_the_next(local_site: Site) -> None:
    tag = (await local_site.get("/api/jobs")).headers["ETag"]
    assert (await local_site.get("/api/jobs", **{"If-None-Match": tag})).status == 304
    waiting = asyncio.ensure_future(
        local_site.get("/api/jobs", **{"If-None-Match": tag, "Prefer": "wait=20"})
    )
    while not local_site.feed.watchers:
        await asyncio.sleep(0.01)
    local_site.feed.notify()  # nothing has changed, so there is nothing to say
    while local_site.feed.watchers:
        await asyncio.sleep(0.01)
    while not local_site.feed.watchers and not waiting.done():  # it looks again, and waits again
        await asyncio.sleep(0.01)
    assert not waiting.done()
    local_site.show(machine())
    response = await waiting
    assert response.status == 200
    assert response.headers["ETag"] != tag
    assert (await response.json())["place"] == "machine"


async def test_whoever_waits_in_vain_gets_an_answer(local_site: Site) -> None:
    tag = (await local_site.get("/api/jobs")).headers["ETag"]
    assert (await local_site.get("/api/jobs", **{"If-None-Match": tag, "Prefer": "wait=1"})).status == 304
    assert local_site.feed.watchers == 0
    assert (await local_site.get("/api/jobs", **{"If-None-Match": tag, "Prefer": "wait=soon"})).status == 304


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/jobs", "/api/jobs/a/b", "/nothing"])
async def test_every_answer_keeps_the_page_to_itself(local_site: Site, path: str) -> None:
    response = await local_site.get(path)
    for name in SECURITY_HEADERS:
        assert name in response.headers, name
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


async def test_the_page_needs_nothing_from_elsewhere(local_site: Site) -> None:
    seen, left = set(), ["/"]
    while left:
        path = left.pop()
        seen.add(path)
        response = await local_site.get(path)
        assert response.status == 200, path
        text = await response.text()
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path
        assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=", text), path
        found = [f"/{name}" for name in re.findall(r'"(static/[\w.]+)"', text)]
        found += [f"/static/{name}" for name in re.findall(r'from "\./([\w.]+)"', text)]
        left += [path for path in found if path not in seen]
    assert len(seen) >= 9


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_it_can_only_be_read(local_site: Site, method: str) -> None:
    for path in ("/", "/api/jobs", "/api/jobs/research/digits"):
        response = await local_site.session.request(method, local_site.address + path)
        assert response.status == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.7:8081"]
)
async def test_a_name_that_somebody_points_here_gets_nothing(local_site: Site, host: str) -> None:
    response = await local_site.get("/api/jobs", Host=host)
    assert response.status == 403
    assert "research" not in await response.text()


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8081"])
async def test_names_of_this_machine_are_answered(local_site: Site, host: str) -> None:
    assert (await local_site.get("/api/jobs", Host=host)).status == 200


async def test_whoever_may_see_some_namespaces_sees_no_other(guarded_site: Site) -> None:
    assert (await guarded_site.get("/api/jobs")).status == 401
    assert (await guarded_site.get("/")).status == 200
    mine = {"Authorization": "Bearer good"}
    assert (await (await guarded_site.get("/api/jobs", **mine)).json())["jobs"] == []
    assert (await guarded_site.get("/api/jobs/research/digits", **mine)).status == 404


async def test_a_number_that_json_does_not_have_takes_no_page_from_the_other_jobs(local_site: Site) -> None:
    times = Calendar()
    spread = {"personalAccuracy": float("inf"), "bytesSent": float("nan")}
    odd = running(times, "odd", silos=[{"name": "north", "namespace": "a", "state": "Awaited", **spread}])
    local_site.show(JobsSnapshot(place="machine", jobs=[odd, running(times, "even")]))
    overview = json.loads(await (await local_site.get("/api/jobs")).text(), parse_constant=pytest.fail)
    assert sorted(job["name"] for job in overview["jobs"]) == ["even", "odd"]
    page = json.loads(
        await (await local_site.get("/api/jobs/research/odd")).text(), parse_constant=pytest.fail
    )
    assert page["members"][0]["name"] == "north"
