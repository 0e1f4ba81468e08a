"""What an institution's cluster keeps when its release goes and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.institutions import edges
from tests.cluster.institutions.consortium import EAST, Houses
from tests.cluster.namespace import until

pytestmark = pytest.mark.timeout(600)

JOB_SECONDS = 120.0
KEY = "fedsilo-signing-key"


def test_a_release_that_is_uninstalled_and_installed_again_keeps_key_audit_log_and_decisions(
    houses: Houses, tmp_path: Path
) -> None:
    east = houses.east

    def kept() -> dict[str, object]:
        agents = {item["metadata"]["uid"]: item["status"]["decision"] for item in east.select("siloagents")}
        claims = {item["metadata"]["uid"] for item in east.select("persistentvolumeclaims")}
        assert len(agents) == len(claims) == 1
        return {"key": east.get("secret", KEY)["data"], "decisions": agents, "audit logs": claims}

    with houses.hub.behind(edges.balancer, tmp_path, tls=True):
        first = houses.job("before", rounds=1)
        houses.hub.kubectl.apply(first.job)
        first.ended(timeout=JOB_SECONDS)
        before = kept()
        houses.clinic.helm.run("uninstall", EAST, "-n", east.name, "--wait")
        assert kept() == before
        houses.install_clinic("install", houses.folder / f"{EAST}.yaml")
        until(lambda: east.get("silo", EAST)["status"].get("publicKey"), "the key")
        assert kept() == before
        second = houses.job("after", rounds=1)
        houses.hub.kubectl.apply(second.job)
        second.ended(timeout=JOB_SECONDS)
