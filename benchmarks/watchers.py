"""Those who watch an operator: a Prometheus that scrapes it and a person with the dashboard open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

SCRAPE = 15.0
"""Seconds between two scrapes."""


@asynccontextmanager
async def watching(health: int, dashboard: int) -> AsyncIterator[None]:
    """Ask the ports of 127.0.0.1 as both do, until the block ends."""
    async with aiohttp.ClientSession() as session:
        tasks = [
            asyncio.ensure_future(_scrape(session, f"http://127.0.0.1:{health}/metrics")),
            asyncio.ensure_future(_read(session, f"http://127.0.0.1:{dashboard}/api/jobs")),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _scrape(session: aiohttp.ClientSession, address: str) -> None:
    while True:
        with suppress(aiohttp.ClientError):
            async with session.get(address) as response:
                await response.read()
        await asyncio.sleep(SCRAPE)


async def _read(session: aiohttp.ClientSession, address: str) -> None:
    """As the page does: ask for what is newer than what one has, and wait for it."""
    headers = {"Prefer": "wait=25"}
    while True:
        with suppress(aiohttp.ClientError):
            async with session.get(address, headers=headers) as response:
                await response.read()
                if response.status == 200:
                    headers["If-None-Match"] = response.headers["ETag"]
        await asyncio.sleep(1.0)
