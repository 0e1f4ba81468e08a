"""The federation that is disturbed, and its model when nothing happens."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hack.cluster.kubectl import Kubectl
from tests.cluster.chaos.disturbance import SPEC
from tests.cluster.federation import ClusterFederation, federation, run_here
from tests.cluster.namespace import Namespace


@pytest.fixture(scope="module")
def places(kubectl: Kubectl, installed_operator: Namespace) -> Iterator[ClusterFederation]:
    """The silos, for one job after the other: what a silo computes depends on its namespace and name."""
    with federation(kubectl, "fedavg.yaml", **SPEC) as made:
        kubectl.apply(*(item for item in made.objects if item["kind"] != "FederatedJob"))
        yield made


@pytest.fixture(scope="module")
def undisturbed_digest(places: ClusterFederation, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return str(run_here(list(places.objects), folder)["model"]["sha256"])


@pytest.fixture
def running(places: ClusterFederation) -> Iterator[ClusterFederation]:
    """The job under a name of its own, with a round behind it and many to go."""
    job = copy.deepcopy(places.job)
    job["metadata"]["name"] = f"chaos-{uuid.uuid4().hex[:6]}"
    others = (item for item in places.objects if item["kind"] != "FederatedJob")
    made = replace(places, objects=(*others, job))
    made.kubectl.apply(job)
    try:
        made.round_reached(1)
        yield made
    finally:
        made.home.delete("federatedjob", job["metadata"]["name"])
