"""The pictures of docs/dashboard.md: `python -m tests.cluster.dashboard.pictures docs/images`."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image

from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.server import INSTITUTION, JOBS, LocalAccess, serving
from tests.cluster.dashboard.browser import browser, fresh_page
from tests.unit.dashboard.institutions import hospital
from tests.unit.dashboard.snapshots import Calendar, consortium

COLOURS = 96
"""Colours of a picture: type and a few colours need no more, and the file is small."""


async def take(folder: Path, browser_port: int) -> None:
    """All jobs in the dark, one of them in the light, figures by class, and an institution's own page."""
    times = Calendar(datetime.now(UTC))
    jobs, institution = consortium(times), hospital(times)
    async with (
        serving(Feed(lambda: jobs), LocalAccess(), "127.0.0.1", 0, views=JOBS) as port,
        serving(Feed(lambda: institution), LocalAccess(), "127.0.0.1", 0, views=INSTITUTION) as silo_port,
        fresh_page(browser_port) as page,
    ):
        for name, at, path, width, height, dark in (
            ("dashboard-jobs", port, "", 1040, 700, True),
            ("dashboard-job", port, "#/jobs/research/digits", 1040, 880, False),
            ("dashboard-classes", port, "#/jobs/research/night-shift", 1040, 690, False),
            ("dashboard-institution", silo_port, "", 1040, 1180, False),
        ):
            await page.show(f"http://127.0.0.1:{at}/{path}", width=width, height=height, dark=dark)
            await page.wait_until("document.getElementById('live').textContent === 'live'", "a live page")
            if name == "dashboard-classes":
                await page.value(
                    "document.querySelector('.cell').closest('section').scrollIntoView(); scrollBy(0, -20)"
                )
            picture = folder / f"{name}.png"
            await page.picture(picture, whole=False)
            Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    with browser() as at:
        asyncio.run(take(Path(sys.argv[1]), at))
