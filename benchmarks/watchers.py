"""The watchers of an operator: a Prometheus that scrapes it and a person with the dashboard open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

SCRAPE_SECONDS = 15.0
"""Seconds between two scrapes."""

PAUSE_SECONDS = 1.0
"""Seconds after which the page of a dashboard asks again."""

TIMEOUT = aiohttp.ClientTimeout(total=120)


REQUEST_ERRORS = (aiohttp.ClientError, TimeoutError)


@asynccontextmanager
async def watching(health: int, dashboard: int) -> AsyncIterator[None]:
    """Ask the ports of 127.0.0.1 as both do, until the block ends.

    :raises SystemExit: when one of them never had an answer, so that nobody watched.
    """
    answers = {"metrics": 0, "dashboard": 0}
    async with aiohttp.ClientSession(raise_for_status=True, timeout=TIMEOUT) as session:
        tasks = [
            asyncio.create_task(_scrape(session, f"http://127.0.0.1:{health}/metrics", answers)),
            asyncio.create_task(_read(session, f"http://127.0.0.1:{dashboard}/api/jobs", answers)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    if not all(answers.values()):
        raise SystemExit(f"the operator was not watched: {answers}")


async def _scrape(session: aiohttp.ClientSession, address: str, answers: dict[str, int]) -> None:
    while True:
        with suppress(*REQUEST_ERRORS):
            async with session.get(address) as response:
                await response.read()
                answers["metrics"] += 1
        await asyncio.sleep(SCRAPE_SECONDS if answers["metrics"] else PAUSE_SECONDS)


async def _read(session: aiohttp.ClientSession, address: str, answers: dict[str, int]) -> None:
    """Ask for what is newer than what was read, as the dashboard's page does, and wait for it."""
    headers = {"Prefer": "wait=25"}
    while True:
        with suppress(*REQUEST_ERRORS):
            async with session.get(address, headers=headers) as response:
                await response.read()
                answers["dashboard"] += 1
                if response.status == 200:
                    headers["If-None-Match"] = response.headers["ETag"]
        await asyncio.sleep(PAUSE_SECONDS)
