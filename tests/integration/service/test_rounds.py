"""How rounds of a job end: at once, in time, or with a reason that names whom it waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedsilo.files.json_files import read_json
from fedsilo_aggregator.http import MAX_WAIT_SECONDS
from tests.integration.service.client import SiloClient, finish_job
from tests.integration.service.site import Process, Site, federation, wait_until
from tests.ports import free_port
from tests.scraping import scrape


@contextmanager
def serving(site: Site, *more: str) -> Iterator[tuple[Process, SiloClient, SiloClient]]:
    aggregator = site.aggregator(more=more)
    try:
        north, south = (SiloClient(site, silo) for silo in site.silos)
        yield aggregator, north, south
    finally:
        aggregator.kill()


def test_a_waiting_silo_hears_at_once_and_the_aggregator_stays_until_all_have(tmp_path: Path) -> None:
    with (
        serving(Site(tmp_path / "job", federation())) as (aggregator, north, south),
        ThreadPoolExecutor(1) as pool,
    ):
        north.answer(north.fetch_task())
        waiting = pool.submit(north.task, after="r00001-train-north")
        given = south.fetch_task()
        south.answer(given)
        # Half of the time for which it may wait: it did not sleep while there was news.
        assert waiting.result(timeout=MAX_WAIT_SECONDS / 2).step == "evaluate"
        for silo in (north, south):
            silo.answer(silo.fetch_task())
        assert north.task(after="r00001-evaluate-north").step == "finish"
        assert north.task(after="").step == "finish", "asked again, it is told again"
        assert aggregator.running, "south has not heard of the end"
        assert south.task(after="r00001-evaluate-south").settings == {"succeeded": True}
        assert aggregator.exit_code() == 0


def test_a_lost_quorum_fails_the_job_and_names_the_silo_and_its_reason(tmp_path: Path) -> None:
    site = Site(tmp_path / "job", federation())
    with serving(site) as (aggregator, north, south):
        assert south.task().step == "train"
        report = b'{"reason": "TrainerError", "message": "out of memory\\n2026-01-01 WARNING forged"}'
        assert north.fail("r00001-train-north", report).status == 204
        for silo in (north, south):
            assert silo.task(after="r00001-train-north").settings == {"succeeded": False}
        assert aggregator.exit_code() == 4
    status = site.status()
    (condition,) = status["conditions"]
    assert (status["phase"], condition["reason"]) == ("Failed", "QuorumLost")
    assert "quorum is 2" in condition["message"]
    assert "silo-north/north failed: TrainerError: out of memory" in condition["message"]
    assert not [line for line in site.log().splitlines() if line.startswith("2026-01-01 WARNING forged")]


@pytest.mark.thorough
def test_an_update_that_the_disk_has_damaged_is_asked_for_again_after_a_restart(tmp_path: Path) -> None:
    site = Site(tmp_path / "job", federation())
    with serving(site) as (_, north, south):
        given = north.fetch_task()
        north.answer(given)
    path = site.workdir.aggregator / "open" / "r00001-train" / "r00001-train-north.update"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    port = free_port()
    with serving(site, "--metrics-port", str(port)) as (aggregator, north, south):
        # As its guard asks, which knows its answer to have been accepted.
        assert north.sealed_task(after=given.task.task) == given.sealed
        again = north.request("GET", f"{north.base}/task?after={given.task.task}&wait=0")
        assert again.status == 204, "given once"
        assert scrape(port).value("fedsilo_damaged_updates_total", job_name="attacked") == 1
        assert finish_job(north, south) == [True, True]
        assert aggregator.exit_code() == 0
    assert f"{path}: the accepted update of silo-north/north does not hold any more" in site.log()


@pytest.mark.thorough
def test_a_deadline_counts_serving_time_closes_with_quorum_and_else_names_the_silos_awaited(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path / "job", federation(rounds=2, deadline="3s", quorum=1))
    with serving(site) as (_, north, south):
        late = south.fetch_task()
        update = south.update(late)
        north.answer(north.fetch_task())
        elapsed = site.workdir.aggregator / "open" / "r00001-train" / "elapsed.json"
        wait_until(
            lambda: (read_json(elapsed) or {"seconds": 0})["seconds"] >= 1,
            "a second of serving time to be remembered",
        )
    killed = time.monotonic()
    wait_until(
        lambda: time.monotonic() > killed + 2, "what was left until the deadline, without an aggregator"
    )
    with serving(site) as (aggregator, north, south):
        assert south.task(wait=0).round == 1, "the time in which the aggregator was down counted"
        with south.begin(late.task.task, update) as too_slow:
            too_slow.sendall(update[:100])
            assert north.task(after="r00001-train-north").round == 2, "closed, whoever was still sending"
        assert south.patch(late.task.task, update).code == "round-closed"
        for name, silo in (("north", north), ("south", south)):
            assert silo.task(after=f"r00002-train-{name}").step == "finish"
        assert aggregator.exit_code() == 4
    status = site.status()
    (condition,) = status["conditions"]
    assert (status["phase"], condition["reason"]) == ("Failed", "DeadlineExceeded")
    assert "still awaited after 3 s: silo-north/north, silo-south/south" in condition["message"]
    assert status["refused"] == {"round-closed": 1, "interrupted": 1}, (
        "too late, and cut off when the round closed"
    )
