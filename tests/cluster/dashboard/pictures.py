"""The pictures of docs/dashboard.md: `python -m tests.cluster.dashboard.pictures docs/images`."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image

from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.server import Local, serving
from tests.cluster.dashboard.browser import browser, fresh_page
from tests.unit.dashboard.snapshots import Calendar, consortium

COLOURS = 96
"""Of a picture: type and a few colours need no more, and the file is small."""


async def take(folder: Path, browser_port: int) -> None:
    """All jobs in the dark, and one of them in the light."""
    snapshot = consortium(Calendar(datetime.now(UTC)))
    async with (
        serving(Feed(lambda: snapshot), Local(), "127.0.0.1", 0) as port,
        fresh_page(browser_port) as page,
    ):
        address = f"http://127.0.0.1:{port}/"
        for name, path, width, height, dark in (
            ("dashboard-jobs", "", 1040, 700, True),
            ("dashboard-job", "#/jobs/research/digits", 1040, 880, False),
        ):
            await page.show(address + path, width=width, height=height, dark=dark)
            await page.until("document.getElementById('live').textContent === 'live'", "a live page")
            picture = folder / f"{name}.png"
            await page.picture(picture, whole=False)
            Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    with browser() as at:
        asyncio.run(take(Path(sys.argv[1]), at))
