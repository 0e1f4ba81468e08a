"""A disk that is full: nothing half-written stays, whoever is refused comes again, and the job goes on with space."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedsilo.wire import write_tensors
from tests.integration.service.client import SiloClient, finish_job, read_tree, signature_of
from tests.integration.service.scripted import ScriptedAggregator
from tests.integration.service.site import Process, Site, federation, wait_until

pytestmark = pytest.mark.thorough

SIZE_BYTES = 40 << 20


def in_own_mounts(directory: Path) -> list[str]:
    """A command that runs another with a small file system of its own over the directory."""
    mount = f'mount -t tmpfs -o size={SIZE_BYTES} tmpfs "$0" && exec "$@"'
    root = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    return [*root, "sh", "-c", mount, str(directory)]


def permitted(directory: Path) -> bool:
    try:
        return subprocess.run([*in_own_mounts(directory), "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@dataclass
class SmallDisk:
    """An aggregator whose directory is a file system of some megabytes, seen through the process."""

    site: Site
    aggregator: Process
    mounted: Path
    north: SiloClient
    south: SiloClient

    @property
    def path(self) -> Path:
        return Path(f"/proc/{self.aggregator.pid}/root{self.mounted}")

    def fill(self, free: int) -> None:
        """Leave so many bytes free."""
        with (self.path / "ballast").open("wb") as file:
            while True:
                space = os.statvfs(self.path)
                # The aggregator may have written something since it was asked how much there is.
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - free)
                    return
                file.truncate(0)

    def clear(self) -> None:
        (self.path / "ballast").unlink()

    def complaints(self) -> int:
        """How often the aggregator has said that it cannot go on."""
        return self.site.log().count("the round goes on when there is space")

    def updates(self) -> list[str]:
        return sorted(
            path.name for path in (self.path / "open" / "r00001-train").iterdir() if "north" in path.name
        )


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    """The one of all tests: after each but the last, round 1 is open."""
    root = tmp_path_factory.mktemp("full")
    mounted = root / "small"
    mounted.mkdir()
    if not permitted(mounted):
        pytest.skip("this system lets neither root nor a user mount a file system in a namespace (unshare)")
    site = Site(root / "job", federation(hidden=(640, 1280)))
    aggregator = site.aggregator(mounted, in_own_mounts(mounted))
    try:
        yield SmallDisk(site, aggregator, mounted, *(SiloClient(site, silo) for silo in site.silos))
    finally:
        aggregator.kill()


def test_an_upload_to_a_full_disk_leaves_nothing_half_written(disk: SmallDisk) -> None:
    given = disk.north.fetch_task()
    disk.fill(free=2 << 20)
    answer = disk.north.patch(given.task.task, disk.north.update(given))
    assert (answer.status, answer.code) == (507, "storage-full")
    assert disk.updates() == []
    assert disk.north.head(given.task.task).headers["Upload-Offset"] == "0"
    disk.clear()


def test_a_failure_report_to_a_full_disk_is_refused_too(disk: SmallDisk) -> None:
    disk.fill(free=0)
    report = b'{"reason": "TrainerError", "message": ""}'
    assert disk.north.fail("r00001-train-north", report).code == "storage-full"
    disk.clear()
    assert disk.north.task().step == "train", "a report that was refused counts for nothing"


def test_a_guard_comes_again_until_there_is_space(disk: SmallDisk) -> None:
    given = disk.north.fetch_task()
    volume = disk.site.workdir.volume("north")
    document = {"signature": signature_of(given.tree).to_dict()}
    (volume.drop / "signature.json").write_text(json.dumps(document))
    directory = volume.drop / given.task.task
    directory.mkdir()
    write_tensors(given.tree, directory / "tensors")
    ScriptedAggregator.complete(directory)
    before = disk.site.log().count("storage-full")
    disk.fill(free=1 << 20)
    guard = disk.site.guard("north")
    try:
        wait_until(lambda: disk.site.log().count("storage-full") >= before + 2, "two refusals")
        assert disk.updates() == []
        disk.clear()
        wait_until(lambda: disk.updates() == ["r00001-train-north.update"], "the update")
    finally:
        guard.kill()


def test_a_disk_that_is_full_when_the_round_is_stored_delays_the_job_and_changes_nothing(
    disk: SmallDisk,
) -> None:
    if not disk.updates():
        disk.north.answer(disk.north.fetch_task())
    given = disk.south.fetch_task()
    update = disk.south.update(given)
    before = disk.complaints()
    disk.fill(free=len(update) + (1 << 20))
    assert disk.south.patch(given.task.task, update).status == 201
    wait_until(lambda: disk.complaints() > before, "the aggregator to notice that the new model does not fit")
    assert disk.south.request("GET", f"{disk.south.base}/task?after={given.task.task}&wait=0").status == 204
    disk.clear()
    assert disk.north.task(after=given.task.task).step == "evaluate"
    disk.north.answer(disk.north.fetch_task())
    scored = disk.south.fetch_task()
    disk.fill(free=1 << 20)
    before = disk.complaints()
    disk.south.answer(scored)
    wait_until(lambda: disk.complaints() > before, "the aggregator to notice that the result does not fit")
    disk.clear()
    wait_until(lambda: (disk.path / "model.safetensors").exists(), "the model")
    model = read_tree((disk.path / "model.safetensors").read_bytes())
    assert all((model[name] == given.tree[name]).all() for name in given.tree), (
        "both silos sent what they got"
    )
    assert finish_job(disk.north, disk.south) == [True, True]
    assert disk.aggregator.exit_code() == 0
