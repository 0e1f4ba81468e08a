"""One job over three kinds of places ends with the bytes of `fedsilo run`, whatever ends TLS before the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.federation import ClusterFederation, run_here
from tests.cluster.institutions import edges
from tests.cluster.institutions.consortium import SILOS, Houses

pytestmark = pytest.mark.timeout(600)

ROUNDS = 2
JOB_SECONDS = 120.0


@pytest.mark.parametrize("edge", [edges.balancer, edges.nginx, edges.haproxy], ids=lambda edge: edge.__name__)
def test_one_job_over_three_places_gives_the_bytes_of_a_run_here(
    houses: Houses, expected: str, edge: edges.Edge, tmp_path: Path
) -> None:
    """TLS ends in the gateway itself, or before it with another certificate than the gateway's or the aggregator's."""
    passed = len(houses.lab.proxy.requests())
    with houses.hub.behind(edge, tmp_path, tls=edge is edges.balancer):
        job = houses.job(f"behind-{edge.__name__}", rounds=ROUNDS)
        houses.hub.kubectl.apply(job.job)
        ended = job.ended(timeout=JOB_SECONDS)
    assert ended["model"]["sha256"] == expected
    assert {silo["name"]: silo["lastRound"] for silo in ended["silos"]} == dict.fromkeys(SILOS, ROUNDS)
    assert len(houses.lab.proxy.requests()) > passed, "the laboratory's way is the proxy"


@pytest.fixture(scope="module")
def expected(houses: Houses, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the model that the federation gives on this machine."""
    job: ClusterFederation = houses.job("here", rounds=ROUNDS)
    return str(run_here(list(job.objects), tmp_path_factory.mktemp("here"))["model"]["sha256"])
