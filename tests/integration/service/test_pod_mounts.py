"""A job whose processes see what pods see: each directory a mount of its own, nothing else to write to, no home.

Every role runs as a user without an entry in /etc/passwd, without capabilities to write what is not its own, over a
read-only root. A rename or link from one mount to another fails (EXDEV), although they are of one volume.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fedsilo.api.loading import load
from fedsilo.silo.volume import Volume
from tests.integration.local.manifest import silo, write
from tests.integration.service.site import Process, Site, wait_until
from tests.tiers import mark_thorough

USER = 65532
READ = "-all,+dac_read_search"
"""The right to read all, for a Python that is in somebody's home; to write it does not help."""

GUARD = {"inbox": "rw", "drop": "rw", "guard": "rw", "audit": "rw"}
TRAINER = {"inbox": "ro", "drop": "rw", "state": "rw"}


def pod(volume: Path, places: dict[str, str]) -> list[str]:
    """What runs a command as a pod does, with places of the volume at /mnt/volume."""
    lines = ["set -e", "mount -t tmpfs -o mode=755 none /mnt", "mkdir /mnt/volume", "mkdir -m 1777 /mnt/tmp"]
    lines += ["mount -t tmpfs none /mnt/tmp"]
    for place, mode in places.items():
        target = f"/mnt/volume/{place}" if place else "/mnt/volume"
        lines += [f"mkdir -p {target}", f"mount --bind {shlex.quote(str(volume / place))} {target}"]
        lines += [f"mount -o remount,bind,{mode} {target}"]
    lines += ["mount -o remount,ro /mnt", "mount -o remount,bind,ro /"]
    rights = f"--bounding-set {READ} --inh-caps {READ} --ambient-caps {READ}"
    lines += [f"exec setpriv --reuid {USER} --regid {USER} --clear-groups {rights} --no-new-privs "]
    lines[-1] += 'env -i PATH="$PATH" TMPDIR=/mnt/tmp PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines), "pod"]


def permitted() -> bool:
    try:
        return subprocess.run([*pod(Path("/"), {}), "true"], capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not permitted(), reason="this system permits no mounts")


def hand_over(*directories: Path) -> None:
    """Make directories as the kubelet makes a place in a volume: of root, writable for the pod's group."""
    for path in directories:
        os.chown(path, 0, USER)
        path.chmod(0o2770)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Two silos without a single file in their volumes but the key, under a method with private state."""
    names = ("north", "south")
    members = [
        silo(
            name,
            {"partition": {"scheme": "iid", "silos": 2, "index": index}},
            payloadKinds=["model", "class_counts"],
        )
        for index, name in enumerate(names)
    ]
    method = {"name": "fedconcat", "config": {"clusters": 2, "classifierRounds": 2}}
    site = Site(tmp_path / "site", load(write(tmp_path / "job.yaml", members, method=method)))
    for name in names:
        volume = site.workdir.volume(name)
        for path in (volume.blobs, volume.outbox):
            path.rmdir()
        (volume.guard / "key.pem").rename(site.workdir.secrets / f"{name}.pem")
        hand_over(volume.inbox, volume.drop, volume.guard, volume.audit, volume.state)
    hand_over(site.workdir.aggregator)
    yield site


def trainer(site: Site, name: str) -> Process:
    return agent(site, name, "trainer", TRAINER, [])


def guard(site: Site, name: str) -> Process:
    return agent(site, name, "guard", GUARD, ["--key", str(site.workdir.secrets / f"{name}.pem")])


def agent(site: Site, name: str, role: str, places: dict[str, str], more: Sequence[str]) -> Process:
    directory = site.workdir.silo(name)
    documents = ["--agent", str(directory / "agent.json"), "--silo", str(directory / "silo.json")]
    log = site.workdir.logs / f"{name}-{role}.log"
    before = pod(site.workdir.volume(name).root, places)
    return Process(f"fedsilo_agent.{role}", [*documents, "--volume", "/mnt/volume", *more], log, before)


@pytest.mark.thorough
def test_a_job_of_pods_comes_to_its_model_in_any_order_of_their_starts(site: Site) -> None:
    names = [silo.metadata.name for silo in site.federation.silos]
    running = [trainer(site, name) for name in names]
    try:
        for name in names:
            signature = site.workdir.volume(name).drop / "signature.json"
            wait_until(signature.exists, f"the trainer of {name}, which waits for its guard")
        running += [guard(site, name) for name in names]
        wait_until(
            lambda: "trying again" in site.log("north-guard"), "the guard, which waits for the aggregator"
        )
        running.append(
            site.start_aggregator(
                directory=Path("/mnt/volume"), before=pod(site.workdir.aggregator, {"": "rw"})
            )
        )
        wait_until((site.workdir.aggregator / "model.safetensors").exists, "the model")
        codes = [process.exit_code() for process in running]
        logs = "\n".join(path.read_text() for path in site.workdir.logs.iterdir())
        assert codes == [0] * 5, logs
        for name in names:
            volume = site.workdir.volume(name)
            assert list(volume.state.glob("*/state.json")), "private state was kept"
            assert list(volume.outbox.iterdir()) == []
    finally:
        for process in running:
            process.kill()


def test_a_trainer_may_write_to_its_own_places_only(site: Site) -> None:
    volume = site.workdir.volume("north")
    tries = [f'touch "{place}/x" && echo {place}' for place in ("inbox", "guard", "audit", "state", "drop")]
    command = ["sh", "-c", "cd /mnt/volume; " + "; ".join(tries)]
    run = subprocess.run([*pod(volume.root, TRAINER), *command], capture_output=True, text=True)
    assert run.stdout.split() == ["state", "drop"]


@pytest.mark.parametrize("role", mark_thorough(["guard", "trainer"], ["guard"]))
def test_a_volume_that_may_not_be_written_is_reported(site: Site, role: str) -> None:
    volume = site.workdir.volume("north")
    volume.drop.chmod(0o700)
    process = {"guard": guard, "trainer": trainer}[role](site, "north")
    assert process.exit_code() == 1
    said = (site.workdir.logs / f"north-{role}.log").read_text()
    drop = Volume(Path("/mnt/volume")).drop
    assert f"{drop}: may not be written; give user {USER} or group {USER} the right" in said
    assert "Traceback" not in said
