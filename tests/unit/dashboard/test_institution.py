"""The institution's own page, as data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.observed import uid_of
from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.institution import MAX_AGENTS, InstitutionSnapshot, institution
from fedsilo.dashboard.server import INSTITUTION, LocalAccess, serving
from fedsilo.dashboard.view import UNREADABLE_STATE
from tests.unit.dashboard.institutions import agent, hospital, receipts
from tests.unit.dashboard.snapshots import Calendar
from tests.unit.dashboard.test_view import golden


def test_the_document_of_a_hospital() -> None:
    golden("institution", institution(hospital()))


def test_who_waits_for_a_person_comes_first_and_what_is_over_last() -> None:
    found = institution(hospital())
    assert [row["job"] for row in found["agents"]] == [
        "research/atlas",
        "research/digits",
        "research/rare",
        "research/scans-2025",
    ]
    assert found["waiting"] == ["atlas-north-1a2b3c4d"]
    assert found["left"] == {"updates": 43, "bytes": 43 * 252_136}


@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("cluster", "kubectl fedsilo approve atlas-north-1a2b3c4d -n silo-north"),
        ("machine", "fedsilo silo approve atlas-north-1a2b3c4d --dir /srv/fedsilo"),
    ],
)
def test_the_command_is_that_of_the_place(place: str, command: str) -> None:
    found = institution(hospital(place=place, directory="/srv/fedsilo"))
    assert found["agents"][0]["approve"] == command
    assert found["agents"][0]["leaves"]["sentence"].startswith("This job receives: models; class means")
    assert [row["approve"] for row in found["agents"][1:]] == [None] * 3


def test_the_silos_whose_keys_a_job_would_trust_are_shown_where_there_are_any() -> None:
    snapshot = hospital()
    waits = snapshot.agents[-1]
    waits["spec"]["trust"]["members"] = [{"silo": "silo-north/north"}, {"silo": "silo-south/south"}]
    waits["status"]["proposal"] = waits["status"]["proposal"] | {"members": "ab" * 32}
    first, *others = institution(snapshot)["agents"]
    assert first["members"] == {"silos": 2, "digest": "ab" * 32}
    assert [row["members"] for row in others] == [None] * 3


def test_the_audit_log_counts_more_than_what_the_guard_said_last() -> None:
    snapshot = hospital()
    running = next(one for one in snapshot.agents if one["status"]["phase"] == "Running")
    found = institution(replace(snapshot, receipts={uid_of(running): receipts(9)}))
    row = next(row for row in found["agents"] if row["state"] == "Running")
    assert (row["receipts"]["live"], row["receipts"]["updates"]) == (True, 9)
    assert [one["round"] for one in row["receipts"]["latest"]] == [9, 8, 7]
    others = [
        row["receipts"]["live"] for row in found["agents"] if row["receipts"] and row["state"] != "Running"
    ]
    assert others == [False]


def test_of_many_agents_the_newest_are_shown() -> None:
    times = Calendar()
    many = [agent(f"job-{number}", "Finished", times, number) for number in range(MAX_AGENTS + 5)]
    found = institution(hospital(agents=many))
    assert (found["count"], len(found["agents"])) == (MAX_AGENTS + 5, MAX_AGENTS)
    assert found["agents"][0]["job"] == "research/job-0"


def test_of_other_namespaces_nothing_is_seen() -> None:
    hidden = hospital().filter_namespaces({"elsewhere"})
    assert institution(hidden)["silos"] == institution(hidden)["agents"] == []
    assert hospital().namespaces == {"silo-north"}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in _places(item, (*path, key)))]


_SHOWN_AGENT = hospital().agents[1]
_CHANGEABLE_PLACES = [place for place in _places(_SHOWN_AGENT) if place and place[0] in ("spec", "status")]


@given(st.sampled_from(_CHANGEABLE_PLACES), st.sampled_from([None, 7, "x", [], {}, [None], True]))
def test_an_agent_that_is_none_hides_no_other(place: tuple[Any, ...], value: Any) -> None:
    broken = deepcopy(_SHOWN_AGENT)
    inner: Any = broken
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    whole = hospital()
    agents = [one if one is not whole.agents[1] else broken for one in whole.agents]
    found = institution(replace(whole, agents=agents))
    jobs = {row["job"] for row in found["agents"] if row["state"] != UNREADABLE_STATE}
    assert {"research/atlas", "research/rare", "research/scans-2025"} <= jobs
    assert len(found["agents"]) == 4


@pytest.fixture
async def address() -> AsyncIterator[str]:
    snapshot: InstitutionSnapshot = hospital()
    async with serving(Feed(lambda: snapshot), LocalAccess(), "127.0.0.1", 0, views=INSTITUTION) as port:
        yield f"http://127.0.0.1:{port}"


async def test_the_server_has_this_page_and_its_document_and_no_jobs(address: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{address}/api/silo") as response:
            assert (await response.json())["waiting"] == ["atlas-north-1a2b3c4d"]
        async with session.get(address) as response:
            assert "static/institution.js" in await response.text()
        async with session.get(f"{address}/api/jobs") as response:
            assert response.status == 404
        async with session.post(f"{address}/api/silo") as response:
            assert response.status == 405
