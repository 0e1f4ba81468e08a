"""Silos on Kubernetes get another signing key while a job runs: it ends with the keys that it began with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.federation import ClusterFederation, run_here, signal
from tests.cluster.institutions import edges
from tests.cluster.institutions.consortium import EAST, NORTH, Consortium
from tests.cluster.namespace import wait_until

pytestmark = pytest.mark.timeout(600)

ROTATING = (NORTH, EAST)
"""The silo in the hub's cluster, and that in a cluster of its own."""

ROUNDS = 4
JOB_SECONDS = 180.0


def test_a_job_that_runs_ends_with_the_old_keys_and_the_next_one_uses_the_new(
    consortium: Consortium, tmp_path: Path
) -> None:
    """Also where a guard starts again after the rotation. Rounds take seconds, so that some are left by then."""
    running = consortium.job("rotated", rounds=ROUNDS, localEpochs=30)
    following = consortium.job("next", rounds=1)
    with consortium.hub.serve_gateway(edges.balancer, tmp_path, tls=True):
        consortium.hub.kubectl.apply(running.job)
        running.round_reached(1)
        old = published_keys(consortium)
        assert trusted_keys(running) == old
        north = consortium.place(NORTH)
        trainer = running.pod(north, "trainer")
        signal(north, trainer, "SIGSTOP")  # the job cannot end meanwhile, however fast the machine is
        consortium.hub.kubectl.fedsilo("rotate-key", NORTH, "--yes", "-n", north.name)
        consortium.clinic.kubectl.fedsilo("rotate-key", EAST, "--yes", "-n", consortium.east.name)
        wait_until(
            lambda: not set(published_keys(consortium).values()) & set(old.values()),
            "the new keys",
            JOB_SECONDS,
        )
        signal(north, running.pod(north, "guard"), "SIGKILL")
        assert running.status()["round"] < ROUNDS
        signal(north, trainer, "SIGCONT")
        ended = running.wait_complete(timeout=JOB_SECONDS)
        assert trusted_keys(running) == old
        assert ended["model"]["sha256"] == run_here(list(running.objects), tmp_path)["model"]["sha256"]

        consortium.hub.kubectl.apply(following.job)
        following.wait_complete(timeout=JOB_SECONDS)
        assert trusted_keys(following) == published_keys(consortium)
        accepted = consortium.place(EAST).get("silo", EAST)["spec"]["remote"]["publicKey"]
        assert accepted == old[EAST], "the office need not accept the new one"


def published_keys(consortium: Consortium) -> Mapping[str, str]:
    """The silos' keys, as everyone at the hub sees them."""
    return {name: consortium.silo_status(name).get("publicKey", "") for name in ROTATING}


def trusted_keys(job: ClusterFederation) -> Mapping[str, str]:
    """The keys with which the silos take part in a job."""
    name = job.job["metadata"]["name"]
    found = [job.silo(silo).select("siloagents", f"fedsilo.io/job-name={name}") for silo in ROTATING]
    return {silo: agent["spec"]["trust"]["publicKey"] for silo, (agent,) in zip(ROTATING, found, strict=True)}
