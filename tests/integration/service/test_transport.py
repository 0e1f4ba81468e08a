"""Networks that break and silos that dawdle: transfers go on where they stopped, and nobody waits for anybody."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.client import SiloClient, finish_job
from tests.integration.service.site import Site, federation, wait_until

CHUNK_BYTES = 1 << 20
"""What the aggregator writes at a time; less than that of a broken upload may be lost."""


class Pair:
    """A job over a model of some megabytes, and an honest update for north's first task."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root, federation(hidden=(1024, 2560)))
        self.aggregator = self.site.aggregator()
        self.north, self.south = (SiloClient(self.site, silo) for silo in self.site.silos)
        self.given = self.north.fetch_task()
        self.update = self.north.update(self.given)
        self.task = self.given.task.task


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    found = Pair(tmp_path_factory.mktemp("transport"))
    try:
        yield found
    finally:
        found.aggregator.kill()


def offset_of(client: SiloClient, task: str) -> int:
    return int(client.head(task).headers["Upload-Offset"])


def test_an_upload_that_is_cut_anywhere_goes_on_from_the_offset(pair: Pair) -> None:
    cuts, kept, sent = random.Random(7), 0, 0
    for _ in range(4):
        end = kept + cuts.randrange(CHUNK_BYTES // 8, 3 * CHUNK_BYTES // 2)
        sent = max(sent, end)
        with pair.north.begin(pair.task, pair.update, kept) as connection:
            connection.sendall(pair.update[kept:end])
            if end - kept >= CHUNK_BYTES:
                wait_until(lambda: offset_of(pair.north, pair.task) > kept, "a whole chunk")  # noqa: B023
        # What was written in whole chunks stays; asked too early, the offset is lower, and bytes come twice.
        again = offset_of(pair.north, pair.task)
        assert kept <= again <= sent
        kept = again
    assert kept > 0


def test_an_upload_whose_connection_is_dead_does_not_block_the_next(pair: Pair) -> None:
    """The silo's network was cut and this side has not noticed: the old connection just says nothing any more."""
    offset = offset_of(pair.north, pair.task)
    with pair.north.begin(pair.task, pair.update, offset) as dead:
        dead.sendall(pair.update[offset : offset + CHUNK_BYTES])
        wait_until(lambda: offset_of(pair.north, pair.task) > offset, "the bytes of the connection that dies")
        offset = offset_of(pair.north, pair.task)
        with pair.north.begin(pair.task, pair.update, offset) as alive:
            alive.sendall(pair.update[offset : offset + CHUNK_BYTES])
            wait_until(
                lambda: offset_of(pair.north, pair.task) > offset, "the bytes of the connection that lives"
            )


def test_a_silo_that_sends_slowly_does_not_block_the_others(pair: Pair) -> None:
    task = pair.south.task().task
    update = pair.south.update(pair.south.fetch_task())
    with pair.south.begin(task, update, 0) as slow:
        slow.sendall(update[:100])
        assert pair.north.request("GET", pair.north.base + "/task?after=&wait=0").status == 200
        assert pair.north.head(pair.task).status == 200


def test_a_download_goes_on_from_a_range(pair: Pair) -> None:
    link = pair.given.task.blobs[0]
    path = f"{pair.north.base}/blobs/{link.digest}"
    with pair.north.socket() as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: {pair.north.proof('GET', path)}\r\n\r\n".encode()
        )
        head, _, body = connection.recv(100_000).partition(b"\r\n\r\n")
        while len(body) < 200_000:
            body += connection.recv(100_000)
    assert head.startswith(b"HTTP/1.1 200")
    rest = pair.north.request("GET", path, {"Range": f"bytes={len(body)}-"})
    assert rest.status == 206
    assert hashlib.sha256(body + rest.body).hexdigest() == link.digest


@pytest.mark.thorough
def test_an_aggregator_that_is_killed_in_the_middle_of_an_upload_ends_with_the_same_model(
    pair: Pair, tmp_path: Path
) -> None:
    """The disturbed run and an undisturbed one, over the same updates, give the same bytes."""
    offset = offset_of(pair.north, pair.task)
    assert offset < len(pair.update)
    with pair.north.begin(pair.task, pair.update, offset) as connection:
        connection.sendall(pair.update[offset : offset + CHUNK_BYTES])
        wait_until(lambda: offset_of(pair.north, pair.task) > offset, "some of the upload")
        pair.aggregator.kill()
    pair.aggregator = pair.site.aggregator()
    kept = offset_of(pair.north, pair.task)
    assert offset < kept <= offset + CHUNK_BYTES, "the restarted aggregator forgot what it had"
    assert pair.north.patch(pair.task, pair.update, offset=kept).status == 201
    given = pair.south.fetch_task()
    task, update = given.task.task, pair.south.update(given)
    assert pair.south.patch(task, update, offset=offset_of(pair.south, task)).status == 201
    assert finish_job_from(pair) == [True, True]
    assert pair.aggregator.exit_code() == 0
    assert model_of(pair.site) == undisturbed_digest(tmp_path)


def finish_job_from(pair: Pair) -> list[bool]:
    after = pair.given.task.task
    assert pair.north.task(after).step == "evaluate"
    return finish_job(pair.north, pair.south)


def model_of(site: Site) -> str:
    return hashlib.sha256((site.workdir.aggregator / "model.safetensors").read_bytes()).hexdigest()


def undisturbed_digest(root: Path) -> str:
    site = Site(root / "undisturbed", federation(hidden=(1024, 2560)))
    aggregator = site.aggregator()
    try:
        assert finish_job(*(SiloClient(site, silo) for silo in site.silos)) == [True, True]
        assert aggregator.exit_code() == 0
        return model_of(site)
    finally:
        aggregator.kill()
