"""A job in which nobody may be missing, and what is done to it and asked about it while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fedsilo.api.observed import Object
from hack.cluster.errors import ClusterError
from hack.cluster.kubectl import KubectlError
from tests.cluster.federation import ClusterFederation, signal
from tests.cluster.namespace import Namespace

ROUNDS = 12

SPEC: dict[str, Any] = {
    "training": {"rounds": ROUNDS, "localEpochs": 10, "batchSize": 16},
    "silos": {
        "refs": [{"namespace": "silo-north", "name": "north"}, {"namespace": "silo-east", "name": "east"}]
    },
    # Nobody may be missing in a round, or the model would be another one.
    "participation": {"minSilos": 2, "roundDeadline": "10m"},
}


@contextmanager
def hold_trainer(running: ClusterFederation) -> Iterator[None]:
    """Stop east's trainer in its round, which cannot end before it goes on.

    What happens meanwhile happens in the middle of the job, however slow or fast the machine.
    """
    place = running.silo("east")
    pod = running.pod(place, "trainer")
    signal(place, pod, "SIGSTOP")
    try:
        yield
        assert running.status()["round"] < ROUNDS
    finally:
        # Unless it was killed meanwhile.
        with suppress(ClusterError, KubectlError):
            signal(place, pod, "SIGCONT")


def agent_of(running: ClusterFederation, place: Namespace) -> str:
    """Name of the job's SiloAgent in a silo's namespace."""
    (agent,) = of_job(running, place, "siloagents")
    return str(agent["metadata"]["name"])


def of_job(running: ClusterFederation, place: Namespace, kind: str) -> list[Object]:
    """What belongs to this job: earlier ones left their volumes."""
    return place.select(kind, f"fedsilo.io/job-name={running.job['metadata']['name']}")
