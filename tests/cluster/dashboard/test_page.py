"""The dashboard in a real browser: live, by keyboard, on a phone, for a screen reader, and with hostile words."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from itertools import pairwise, product
from typing import Any

import pytest

from fedsilo.dashboard.snapshot import JobsSnapshot
from tests.cluster.dashboard.browser import Page
from tests.cluster.dashboard.conftest import Site
from tests.cluster.dashboard.contrast import CONTRAST
from tests.unit.dashboard.snapshots import Calendar, consortium, running

JOBS = ("digits", "night-shift", "rare-classes", "scans-2026")
PAGES = ("", *(f"#/jobs/research/{name}" for name in JOBS))

NAMED_ROLES = ("link", "button", "textbox", "image", "progressbar", "table", "region", "heading")
"""Roles that say nothing without a name."""

HOSTILE_TEXT = (
    "<img src=x onerror=\"document.title='caught'\"><script>document.title='caught'</script>&lt;b&gt;'\"`${1}"
)


async def test_the_overview_says_who_is_awaited_and_since_when(page: Page, site: Site) -> None:
    await page.show(site.address)
    text = await page.text()
    for words in (
        "Waits for east and west since",
        "7 of 21 rounds · now train",
        "4 silos: 2 reported, 2 awaited",
        "6.5 MB received · 3 refused",
        "71.8%",
        "QuorumLost",
        "The trainer crashed with exit code 137",
    ):
        assert words in text, (words, text)
    assert "Not of these jobs" not in text


async def test_the_page_of_a_job_has_curves_silos_contract_and_receipts(page: Page, site: Site) -> None:
    await page.show(f"{site.address}#/jobs/research/digits")
    text = await page.text()
    for words in (
        "This job receives: models of 62,006 parameters; class means for 10 classes",
        "2 of 4 have answered, 3 are needed",
        "round-closed",
        "a1" * 32,
        "kubectl fedsilo why digits -n research",
    ):
        assert words in text, (words, text)
    assert await page.value("document.title") == "digits · fedsilo"
    images = [node["name"] for node in await page.tree() if node["role"] == "image"]
    assert any(name.startswith("accuracy by round: evaluated, from 35.7% in round 1") for name in images), (
        images
    )


async def test_what_a_model_makes_of_each_class_is_a_picture(page: Page, site: Site) -> None:
    await page.show(f"{site.address}#/jobs/research/night-shift")
    images = [node["name"] for node in await page.tree() if node["role"] == "image"]
    for picture in (
        "recall by class: adipose 96.9%, debris 83.9%, lymphocytes undefined, mucus 57.8%",
        "precision by class: adipose 95.0%",
        "Correct answers by class: adipose: 814 of 840, debris: 512 of 610, lymphocytes: 0 of 0",
    ):
        assert any(name.startswith(picture) for name in images), (picture, images)
    assert await page.value("document.querySelectorAll('.cell').length") == 64
    await page.value(
        "document.querySelector('[data-key=\"class recall\"]').closest('section').querySelector('summary').click()"
    )
    assert "adipose (136)" in await page.text()


async def test_long_names_and_large_counts_stay_readable_in_pictures(
    page: Page, site: Site, times: Calendar
) -> None:
    wide = [
        "left ventricle, cavity with papillary muscles",
        "left ventricle, cavity with trabeculae",
        "心室" * 20,
    ]
    examples = [48_622_196, 120_331, 1_920_441, 0]
    found = [{"name": name, "figures": {"dice": 0.5}, "answers": examples} for name in [*wide, "background"]]
    site.show(consortium(times, running(times, classes=found)))
    await page.show(f"{site.address}#/jobs/research/digits")
    names = "[...document.querySelectorAll('[data-key=\"class dice\"] g')].map((row) => row.children[1].textContent)"
    assert len(set(await page.value(names))) == 4
    outside = (
        "[...document.querySelectorAll('.chart svg')].flatMap((svg) => [...svg.querySelectorAll('text')].filter("
        "(text) => text.getBBox().x < 0 || text.getBBox().x + text.getBBox().width > svg.viewBox.baseVal.width)"
        ".map((text) => text.textContent))"
    )
    assert await page.value(outside) == []
    cells = (
        "[...document.querySelectorAll('.number')].filter((text) => text instanceof SVGElement)"
        ".map((text) => [text.textContent, text.getBBox().width < text.previousSibling.getBBox().width])"
    )
    assert (await page.value(cells))[:3] == [["49M", True], ["120k", True], ["1.9M", True]]


async def test_the_score_that_stands_for_a_job_is_first(page: Page, site: Site, times: Calendar) -> None:
    """An error's curve ends at none, where a share's ends at all."""
    points = [
        {"round": number, "metrics": {"accuracy": 0.9, "calibration_error": 0.08 / number, "dice": 0.6}}
        for number in (1, 2)
    ]
    best = {"round": 2, "metric": "dice", "value": 0.6}
    site.show(
        consortium(
            times, running(times, curve=points, metrics=points[1]["metrics"], best=best, score="dice=0.6")
        )
    )
    await page.show(f"{site.address}#/jobs/research/digits")
    titles = "[...document.querySelectorAll('.chart .title')].map((title) => title.textContent)"
    assert await page.value(titles) == ["dice", "accuracy", "calibration_error"]
    ticks = (
        "[...document.querySelectorAll('[data-key=calibration_error] text')].map((tick) => tick.textContent)"
    )
    assert (await page.value(ticks))[:5] == ["0%", "2%", "4%", "6%", "8%"]


async def test_the_accuracy_of_silos_own_models_is_shown_where_it_may_be_reported(
    page: Page, site: Site, times: Calendar
) -> None:
    await page.show(f"{site.address}#/jobs/research/digits")
    assert "Own model" not in await page.text()
    job = running(times)
    for silo, accuracy in zip(job["status"]["silos"], (0.9378, 0.8512, None, 0.9), strict=True):
        silo["personalAccuracy"] = accuracy
    site.show(consortium(times, job))
    await page.wait_until("document.body.innerText.includes('Own model')", "the column")
    text = await page.text()
    assert "93.8%" in text and "85.1%" in text and "90.0%" in text


async def test_what_changes_is_shown_without_reload_and_said_aloud(
    page: Page, site: Site, times: Calendar
) -> None:
    await page.show(site.address)
    await page.value("window.mark = 1")
    await page.wait_until("document.getElementById('live').textContent === 'live'", "a live page")
    site.show(consortium(times, running(times, rounds=8)))
    await page.wait_until("document.body.innerText.includes('8 of 21 rounds')", "the next round")
    assert await page.value("window.mark") == 1
    await page.wait_until(
        "document.getElementById('news').textContent.includes('digits: 8 rounds of 21')", "news"
    )
    assert await page.value("document.getElementById('news').getAttribute('aria-live')") == "polite"


async def test_a_change_takes_neither_focus_nor_what_is_open(page: Page, site: Site, times: Calendar) -> None:
    await page.show(f"{site.address}#/jobs/research/digits")
    await page.value("document.querySelector('details').open = true")
    await page.value("document.querySelectorAll('summary')[1].focus()")
    site.show(consortium(times, running(times, rounds=8)))
    await page.wait_until("document.body.innerText.includes('8 of 21 rounds')", "the next round")
    assert await page.value("document.querySelector('details').open")
    assert await page.value("document.activeElement === document.querySelectorAll('summary')[1]")


async def test_a_broken_connection_is_reported_and_comes_back(
    page: Page, site: Site, times: Calendar
) -> None:
    await page.show(site.address)
    await site.end()
    await page.wait_until("document.getElementById('live').textContent.includes('lost')", "the loss")
    assert "digits" in await page.text()
    site.snapshot = consortium(times, running(times, rounds=9))
    await site.begin()
    await page.wait_until("document.body.innerText.includes('9 of 21 rounds')", "the connection again")
    assert await page.value("document.getElementById('live').textContent") == "live"


async def test_everything_can_be_reached_by_keyboard_and_the_focus_is_seen(page: Page, site: Site) -> None:
    await page.show(site.address)
    reached: list[str] = []
    for _ in range(7):
        await page.press("Tab")
        reached.append(await page.value("document.activeElement.textContent"))
        outline = await page.value("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", reached
    assert reached[:6] == [
        "Skip to the content",
        "fedsilo",
        "rare-classes",
        "digits",
        "night-shift",
        "scans-2026",
    ]
    await page.value("document.querySelector('.job a').focus()")
    await page.press("Enter")
    await page.wait_until(
        "document.querySelector('h1')?.textContent.includes('rare-classes')", "the job's page"
    )
    assert await page.value("document.activeElement.tagName") == "H1"


async def test_links_go_back(page: Page, site: Site) -> None:
    await page.show(f"{site.address}#/jobs/research/digits")
    await page.value("document.querySelector('.way a').click()")
    await page.wait_until("document.querySelector('h1')?.textContent === 'Jobs'", "the overview")
    await page.value("history.back()")
    await page.wait_until("document.querySelector('h1')?.textContent.includes('digits')", "the job again")


async def open_everything(page: Page, address: str, **screen: Any) -> None:
    """Show a page with everything on it that can be opened."""
    await page.show(address, **screen)
    await page.value("document.querySelectorAll('details').forEach((part) => part.open = true)")


async def too_wide(page: Page) -> Any:
    """Parts that reach beyond the screen."""
    return await page.value(
        "[...document.querySelectorAll('main *')].filter((part) => part.getBoundingClientRect().right > innerWidth + 1"
        " && !part.closest('.unseen, thead, svg')).map((part) => part.outerHTML.slice(0, 80))"
    )


async def test_it_fits_every_screen(page: Page, site: Site) -> None:
    for path, width in product(PAGES, (360, 768, 1280)):
        await open_everything(page, site.address + path, width=width, height=740)
        assert await page.value("document.documentElement.scrollWidth") <= width, (path, width)
        assert await too_wide(page) == [], (path, width)


@pytest.mark.parametrize("dark", [False, True])
async def test_every_text_stands_out_from_its_ground(page: Page, site: Site, dark: bool) -> None:
    """WCAG 2.2, success criterion 1.4.3: 4.5 to 1."""
    for path in PAGES:
        await open_everything(page, site.address + path, dark=dark)
        found = await page.value(CONTRAST)
        assert found["texts"] > 20
        assert found["weak"] == [], path


@pytest.mark.parametrize("width", [360, 1100])
async def test_a_screen_reader_finds_its_way(page: Page, site: Site, width: int) -> None:
    for path in PAGES:
        await open_everything(page, site.address + path, width=width)
        nodes = await page.tree()
        assert {"banner", "main"} <= {node["role"] for node in nodes}
        headings = [int(node["level"]) for node in nodes if node["role"] == "heading"]
        assert headings[0] == 1
        assert headings.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(headings)), headings
        assert [node for node in nodes if node["role"] in NAMED_ROLES and not node["name"]] == []
        # On a narrow screen, too, where rows are drawn as blocks.
        roles = {node["role"] for node in nodes}
        assert {"table", "row", "rowheader"} <= roles
        assert roles & {"cell", "gridcell"}


async def test_whoever_wants_no_motion_sees_none(page: Page, site: Site) -> None:
    await page.show(site.address, calm=True)
    await page.value("document.getElementById('live').dataset.state = 'wait'")
    names = (
        "[...document.querySelectorAll('*')].map((part) => getComputedStyle(part, '::before').animationName)"
    )
    assert await page.value(f"{names}.filter((name) => name !== 'none')") == []
    await page.show(site.address, calm=False)
    await page.value("document.getElementById('live').dataset.state = 'wait'")
    assert await page.value(f"{names}.filter((name) => name !== 'none')") == ["breathe"]


async def test_hostile_words_are_words_and_fit_a_phone(page: Page, site: Site) -> None:
    site.snapshot = _poisoned_snapshot(site.snapshot)
    for path in PAGES:
        await open_everything(page, site.address + path, width=360)
        await asyncio.sleep(0.2)
        assert await page.value("document.querySelectorAll('main img, main script, main b > b').length") == 0
        assert "caught" not in await page.value("document.title")
        assert "<img src=x onerror=" in await page.value("document.querySelector('main').textContent")
        assert await too_wide(page) == [], path


def _poisoned_snapshot(snapshot: JobsSnapshot) -> JobsSnapshot:
    """Every text that a job, a silo or an operator writes replaced; names of places and times stay."""
    kept = {"uid", "name", "namespace", "type", "status", "sha256", "update"}

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [spoil(item, key) for item in value]
        is_time = key.endswith(("Time", "Timestamp", "Deadline"))
        return HOSTILE_TEXT if isinstance(value, str) and key not in kept and not is_time else value

    jobs: list[Any] = deepcopy(list(snapshot.jobs))
    events = deepcopy(list(snapshot.events))
    for job in jobs:
        job["status"] = spoil(job["status"])
        job["status"]["metrics"] = {HOSTILE_TEXT: 0.5}
        job["status"]["refused"] = {HOSTILE_TEXT: 2}
        job["status"]["curve"] = [
            {"round": number, "metrics": {HOSTILE_TEXT: 0.1 * number}} for number in (1, 2)
        ]
        for silo in job["status"]["silos"]:
            silo["name"] = silo["namespace"] = HOSTILE_TEXT + silo["name"]
        job["spec"]["method"]["name"] = HOSTILE_TEXT
    return JobsSnapshot(
        snapshot.place, jobs, snapshot.agents, [spoil(event) for event in events], snapshot.receipts
    )


async def test_a_token_is_asked_for_kept_in_the_tab_and_forgotten(page: Page, site: Site) -> None:
    site.access.word = "sesame"
    await page.show(site.address)
    assert "Who asks?" in await page.text()
    assert "digits" not in await page.text()
    for word, sight in (("wrong", "does not know this token"), ("sesame", "digits")):
        assert await page.value("document.activeElement.id") == "token"
        await page.type(word)
        await page.press("Enter")
        await page.wait_until(f"document.querySelector('main').innerText.includes('{sight}')", sight)
    assert await page.value("document.cookie + JSON.stringify(localStorage)") == "{}"
    await page.value("document.getElementById('leave').click()")
    await page.wait_until("document.querySelector('#token')", "the question")
    assert await page.value("sessionStorage.length") == 0
