"""SIGTERM, as Kubernetes sends it when it moves a pod: the process is gone within the grace, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.service.client import SiloClient, finish_job
from tests.integration.service.scripted import ScriptedAggregator
from tests.integration.service.site import Process, Site, federation, wait_until

GRACE_SECONDS = 30
"""What Kubernetes gives a pod; what keeps the processes of these tests busy takes longer."""

CHUNK_BYTES = 1 << 20
"""What the aggregator writes at a time."""


def ends(process: Process) -> tuple[int, float]:
    """Exit code after SIGTERM, and the seconds that it took."""
    began = time.monotonic()
    process.stop()
    return process.exit_code(), time.monotonic() - began


@pytest.mark.thorough
def test_an_aggregator_with_requests_under_way_goes_at_once_and_keeps_what_came(tmp_path: Path) -> None:
    site = Site(tmp_path, federation(hidden=(1024, 2560)))
    aggregator = site.aggregator()
    try:
        north, south = (SiloClient(site, silo) for silo in site.silos)
        given = north.fetch_task()
        task, update = given.task.task, north.update(given)
        with north.begin(task, update) as connection:
            connection.sendall(update[: 2 * CHUNK_BYTES])
            part = next(site.workdir.aggregator.glob("open/*")) / f"{task}.part"
            wait_until(lambda: part.exists() and part.stat().st_size >= CHUNK_BYTES, "some of the upload")
            with south.socket() as waiting:
                path = f"{south.base}/task?after={south.task().task}&wait=60"
                proof = south.proof("GET", path)
                waiting.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {proof}\r\n\r\n".encode())
                time.sleep(0.2)
                code, seconds = ends(aggregator)
        assert code == 143
        assert seconds < GRACE_SECONDS / 2
        aggregator = site.aggregator()
        offset = int(north.head(task).headers["Upload-Offset"])
        assert offset >= CHUNK_BYTES
        assert north.patch(task, update, offset=offset).status == 201
        south.answer(south.fetch_task())
        assert finish_job(north, south) == [True, True]
        assert aggregator.exit_code() == 0
    finally:
        aggregator.kill()


@pytest.mark.thorough
def test_an_aggregator_that_folds_does_not_wait_for_the_fold(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_FOLD)
    site = Site(tmp_path / "site", federation())
    aggregator = site.aggregator(before=["env", f"PYTHONPATH={tmp_path}"])
    try:
        clients = [SiloClient(site, silo) for silo in site.silos]
        for client in clients:
            client.answer(client.fetch_task())
        wait_until(lambda: "folding" in site.log(), "the fold")
        code, seconds = ends(aggregator)
        assert code == 143
        assert seconds < GRACE_SECONDS / 2
        aggregator = site.aggregator()
        assert finish_job(*clients) == [True, True], "the round was folded by the next process"
    finally:
        aggregator.kill()


SLOW_FOLD = """
import sys, threading, time

def slow(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_fold":
        print("folding", file=sys.stderr, flush=True)
        time.sleep(60)

threading.setprofile(slow)
"""


def test_a_guard_goes_at_once(tmp_path: Path) -> None:
    with ScriptedAggregator(tmp_path) as aggregator:
        aggregator.offer(aggregator.task("r00001-north"))
        wait_until(lambda: aggregator.volume.task.exists(), "a task")
        assert aggregator.guard is not None
        code, seconds = ends(aggregator.guard)
    assert code == 143
    assert seconds < GRACE_SECONDS / 2
