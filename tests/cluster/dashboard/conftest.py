"""A dashboard with jobs that a test can change, and a browser that looks at it. No cluster is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from datetime import UTC, datetime

import pytest
from aiohttp import web
from typing_extensions import override

from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.server import JOBS, Access, serving
from fedsilo.dashboard.snapshot import JobsSnapshot, PageSnapshot
from hack.cluster.packages import ensure
from tests.cluster.dashboard.browser import PROGRAM, Page, browser, fresh_page
from tests.unit.dashboard.snapshots import Calendar, consortium


@pytest.fixture(scope="session")
def times() -> Calendar:
    return Calendar(datetime.now(UTC))


@pytest.fixture(scope="module")
def browser_port() -> Iterator[int]:
    """One browser for all tests of a module."""
    ensure(PROGRAM)
    with browser() as port:
        yield port


@pytest.fixture
async def page(browser_port: int, site: Site) -> AsyncIterator[Page]:
    """A fresh tab, which closes before the site does; whatever its console complains about fails the test."""
    async with fresh_page(browser_port) as found:
        yield found
        assert found.complaints == []


class Token(Access):
    """Everybody, or those who have the word."""

    word: str | None = None

    @override
    async def namespaces(self, request: web.Request, snapshot: PageSnapshot) -> Collection[str] | None:
        if self.word and request.headers.get("Authorization") != f"Bearer {self.word}":
            raise web.HTTPUnauthorized()
        return None


class Site:
    """A dashboard whose jobs are set, and which can be taken away and come back at its address."""

    def __init__(self, snapshot: JobsSnapshot) -> None:
        self.snapshot, self.access, self.port = snapshot, Token(), 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def begin(self) -> None:
        self.feed = Feed(lambda: self.snapshot)
        self._context = serving(self.feed, self.access, "127.0.0.1", self.port, views=JOBS)
        self.port = await self._context.__aenter__()

    async def end(self) -> None:
        await self._context.__aexit__(None, None, None)

    def show(self, snapshot: JobsSnapshot) -> None:
        self.snapshot = snapshot
        self.feed.notify()


@pytest.fixture
async def site(times: Calendar) -> AsyncIterator[Site]:
    found = Site(consortium(times))
    await found.begin()
    yield found
    await found.end()
