"""The institution's own page in a real browser: live, on a phone, for a screen reader, and with hostile words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.institution import InstitutionSnapshot
from fedsilo.dashboard.server import INSTITUTION, LocalAccess, serving
from tests.cluster.dashboard.browser import Page, fresh_page
from tests.cluster.dashboard.contrast import CONTRAST
from tests.cluster.dashboard.test_page import HOSTILE_TEXT, NAMED_ROLES, open_everything, too_wide
from tests.unit.dashboard.institutions import hospital
from tests.unit.dashboard.snapshots import Calendar


class ServedPage:
    """The page of an institution whose state is set."""

    def __init__(self, snapshot: InstitutionSnapshot) -> None:
        self.snapshot = snapshot
        self.feed = Feed(lambda: self.snapshot)
        self.address = ""

    def show(self, snapshot: InstitutionSnapshot) -> None:
        self.snapshot = snapshot
        self.feed.notify()


@pytest.fixture
async def served_page(times: Calendar) -> AsyncIterator[ServedPage]:
    found = ServedPage(hospital(times))
    async with serving(found.feed, LocalAccess(), "127.0.0.1", 0, views=INSTITUTION) as port:
        found.address = f"http://127.0.0.1:{port}/"
        yield found


@pytest.fixture
async def tab(browser_port: int, served_page: ServedPage) -> AsyncIterator[Page]:
    """A fresh tab, which closes before the page's server does."""
    async with fresh_page(browser_port) as found:
        yield found
        assert found.complaints == []


async def test_it_says_what_waits_runs_and_has_left_and_that_the_hub_is_silent(
    tab: Page, served_page: ServedPage
) -> None:
    await open_everything(tab, served_page.address)
    text = await tab.text()
    for words in (
        "silo-north/north",
        "cd8f-a86a-fd6b-f20d-66d6",
        "hub.example:443 refuses the connection",
        "This job receives: models; class means for 10 classes",
        "kubectl fedsilo approve atlas-north-1a2b3c4d -n silo-north",
        "admitted by anna@north.example",
        "policy.methods: creff is not permitted.",
        "43 updates, 10.8 MB.",
        "class_means: 9 blocks, 3.0 kB",
        "07" * 32,
        "sent, not acknowledged",
        "fedsilo silo receipts /var/lib/fedsilo",
    ):
        assert words in text, (words, text)


async def test_a_new_question_appears_without_reload_and_is_said_aloud(
    tab: Page, served_page: ServedPage, times: Calendar
) -> None:
    whole = hospital(times)
    served_page.snapshot = hospital(times, agents=whole.agents[:3])
    await tab.show(served_page.address)
    assert "Waits for you" not in await tab.text()
    await tab.wait_until("document.getElementById('live').textContent === 'live'", "a live page")
    served_page.show(whole)
    await tab.wait_until("document.body.innerText.includes('Waits for you')", "the question")
    await tab.wait_until(
        "document.getElementById('news').textContent.includes('research/atlas waits for your approval')",
        "news",
    )


async def test_on_a_machine_the_commands_are_those_of_the_directory(
    tab: Page, served_page: ServedPage, times: Calendar
) -> None:
    served_page.snapshot = hospital(times, place="machine", directory="/srv/fedsilo")
    await tab.show(served_page.address)
    assert "fedsilo silo approve atlas-north-1a2b3c4d --dir /srv/fedsilo" in await tab.text()
    assert "kubectl" not in await tab.text()


@pytest.mark.parametrize(("width", "dark"), [(360, True), (768, False), (1280, False)])
async def test_it_fits_every_screen_and_reader(
    tab: Page, served_page: ServedPage, width: int, dark: bool
) -> None:
    await open_everything(tab, served_page.address, width=width, height=740, dark=dark)
    assert await tab.value("document.documentElement.scrollWidth") <= width
    assert await too_wide(tab) == []
    assert (await tab.value(CONTRAST))["weak"] == []
    nodes = await tab.tree()
    headings = [int(node["level"]) for node in nodes if node["role"] == "heading"]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(headings)), headings
    assert [node for node in nodes if node["role"] in NAMED_ROLES and not node["name"]] == []


async def test_what_a_hostile_hub_writes_is_text(tab: Page, served_page: ServedPage) -> None:
    agents: list[Any] = deepcopy(list(served_page.snapshot.agents))
    for agent in agents:
        job, status = agent["spec"]["job"], agent["status"]
        job["name"] = job["namespace"] = job["spec"]["method"]["name"] = HOSTILE_TEXT
        agent["spec"]["trust"]["url"] = status["message"] = HOSTILE_TEXT
        status["proposal"] = {"trainerImage": HOSTILE_TEXT, "guardImage": HOSTILE_TEXT}
    served_page.snapshot = InstitutionSnapshot("cluster", served_page.snapshot.silos, agents)
    await open_everything(tab, served_page.address, width=360)
    await asyncio.sleep(0.2)
    assert await tab.value("document.querySelectorAll('main img, main script, main b > b').length") == 0
    assert "caught" not in await tab.value("document.title")
    assert "<img src=x onerror=" in await tab.value("document.querySelector('main').textContent")
    assert await too_wide(tab) == []
