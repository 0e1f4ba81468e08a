"""What the releases of hub and institution say of themselves, and what their accounts may do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hack.operator import NAMESPACE
from tests.cluster.institutions import edges
from tests.cluster.institutions.consortium import EAST, Consortium
from tests.cluster.institutions.hub import SERVICE
from tests.cluster.rights import rights

pytestmark = pytest.mark.timeout(600)

DOCTOR = ("DNS", "proxy", "connection", "TLS", "answer", "clock", "proof", "enrolment", "storage")
"""What it looks at, in that order."""


def golden(name: str) -> str:
    return Path(__file__).parents[1].joinpath(f"rights-{name}.golden").read_text()


def test_helm_test_in_an_institutions_cluster_finds_all_well(consortium: Consortium, tmp_path: Path) -> None:
    with consortium.hub.serve_gateway(edges.balancer, tmp_path, tls=True):
        said = consortium.clinic.helm.run("test", EAST, "-n", consortium.east.name, "--logs", timeout=300)
    assert set(re.findall(r"Phase: +(\w+)", said)) == {"Succeeded"}
    logs = dict(re.findall(rf"POD LOGS: {EAST}-test-(\w+) \(\w+\)\n(.*?)\n\n", said, flags=re.DOTALL))
    assert logs.keys() == {"key", "isolation", "doctor"}
    key = consortium.silo_status(EAST)["publicKey"]
    assert logs["key"] == f"Silo {consortium.east.name}/{EAST}: The silo signs with {key}."
    assert "network policies are enforced" in logs["isolation"]
    *checks, total = logs["doctor"].splitlines()
    assert [line.split()[:2] for line in checks] == [["ok", check] for check in DOCTOR]
    assert f"the key {consortium.silo_status(EAST)['enrolment']['fingerprint']}" in logs["doctor"]
    assert total == f"{len(DOCTOR)} checks: {len(DOCTOR)} ok, 0 failed, 0 skipped"


def test_the_doctor_in_an_institutions_cluster_says_that_nobody_answers_for_the_hub(
    consortium: Consortium,
) -> None:
    with pytest.raises(AssertionError, match=f"{EAST}-test-doctor"):
        consortium.clinic.helm.run("test", EAST, "-n", consortium.east.name, timeout=300)
    lines = consortium.east.logs(f"{EAST}-test-doctor").splitlines()
    assert [line.split(maxsplit=2)[:2] for line in lines[:3]] == [
        ["ok", "DNS"],
        ["ok", "proxy"],
        ["FAILED", "connection"],
    ]


def test_rights_of_the_gateway(consortium: Consortium) -> None:
    """What silos reach from outside reads them and writes their status, in every namespace alike."""
    account = consortium.hub.kubectl.as_service_account(NAMESPACE, SERVICE)
    assert rights(account, consortium.place(EAST).name) == golden("gateway")
    assert rights(account, NAMESPACE) == golden("gateway")
    assert "*" not in golden("gateway")


def test_rights_of_an_institutions_connector(consortium: Consortium) -> None:
    """What follows the hub has them in its own namespace only."""
    account = consortium.clinic.kubectl.as_service_account(consortium.east.name, "fedsilo-connector")
    assert rights(account, consortium.east.name) == golden("connector")
    assert rights(account, "kube-system") == golden("agent")
    assert "*" not in golden("connector")
