"""One job over three kinds of places ends with the bytes of `fedsilo run`, whatever ends TLS before the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.federation import ClusterFederation, run_here
from tests.cluster.institutions import edges
from tests.cluster.institutions.consortium import EAST, SILOS, Consortium
from tests.cluster.namespace import wait_until

pytestmark = pytest.mark.timeout(600)

ROUNDS = 2
JOB_SECONDS = 120.0
KEY = "fedsilo-signing-key"


def test_one_job_over_three_places_gives_the_bytes_of_a_run_here(
    consortium: Consortium, expected_digest: str, tmp_path: Path
) -> None:
    """TLS ends in the gateway itself."""
    with consortium.hub.serve_gateway(edges.balancer, tmp_path, tls=True):
        gives_the_bytes(consortium, "behind-nothing", expected_digest)


def test_behind_what_ends_tls_a_release_keeps_key_audit_log_and_decisions_while_it_is_away(
    consortium: Consortium, expected_digest: str, tmp_path: Path
) -> None:
    """Before and after the release is uninstalled and installed again, a job gives the same bytes; TLS ends before the
    gateway, with another certificate than the gateway's or the aggregator's: first in nginx, then in haproxy."""
    east = consortium.east

    def kept_objects(job: str) -> dict[str, object]:
        (agent,) = east.select("siloagents", f"fedsilo.io/job-name={job}")
        (claim,) = east.select("persistentvolumeclaims", f"fedsilo.io/job-name={job}")
        return {
            "key": east.get("secret", KEY)["data"],
            "decision": (agent["metadata"]["uid"], agent["status"]["decision"]),
            "audit log": claim["metadata"]["uid"],
        }

    with consortium.hub.serve_gateway(edges.nginx, tmp_path, tls=False):
        gives_the_bytes(consortium, "behind-nginx", expected_digest)
        before = kept_objects("behind-nginx")
        consortium.clinic.helm.run("uninstall", EAST, "-n", east.name, "--wait")
        assert kept_objects("behind-nginx") == before
        consortium.install_clinic("install", consortium.folder / f"{EAST}.yaml")
        wait_until(lambda: east.get("silo", EAST)["status"].get("publicKey"), "the key")
        assert kept_objects("behind-nginx") == before
    with consortium.hub.serve_gateway(edges.haproxy, tmp_path, tls=False):
        gives_the_bytes(consortium, "behind-haproxy", expected_digest)


def gives_the_bytes(consortium: Consortium, name: str, expected: str) -> None:
    """Run a job to its end, with the laboratory behind its proxy."""
    passed = len(consortium.lab.proxy.requests())
    job = consortium.job(name, rounds=ROUNDS)
    consortium.hub.kubectl.apply(job.job)
    ended = job.wait_complete(timeout=JOB_SECONDS)
    assert ended["model"]["sha256"] == expected
    assert {silo["name"]: silo["lastRound"] for silo in ended["silos"]} == dict.fromkeys(SILOS, ROUNDS)
    assert len(consortium.lab.proxy.requests()) > passed, "the laboratory's way is the proxy"


@pytest.fixture(scope="module")
def expected_digest(consortium: Consortium, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of the model that the federation gives on this machine."""
    job: ClusterFederation = consortium.job("here", rounds=ROUNDS)
    return str(run_here(list(job.objects), tmp_path_factory.mktemp("here"))["model"]["sha256"])
