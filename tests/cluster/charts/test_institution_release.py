"""docs/institution.md on an API server: an institution's release comes, changes and goes, and what it decided stays."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hack.cluster.apiserver import api_server
from hack.cluster.kubectl import Kubectl
from tests.cluster.charts.helm import invitation
from tests.pages import blocks, runs
from tests.terminal import Terminal

NAMESPACE = "silo-clinic"


@pytest.fixture
def kubectl() -> Iterator[Kubectl]:
    """An API server without a node."""
    with api_server("institution", controllers=True) as kubeconfig:
        yield Kubectl(kubeconfig)


@runs(
    "docs/institution.md",
    "helm install clinic charts/fedsilo-silo -n silo-clinic --create-namespace -f invitation.yaml -f clinic.yaml",
    "kubectl get silo clinic -n silo-clinic -o yaml",
    "kubectl fedsilo approve -n silo-clinic",
    "helm upgrade clinic charts/fedsilo-silo -n silo-clinic -f invitation.yaml -f clinic.yaml",
    "kubectl annotate silo clinic -n silo-clinic fedsilo.io/leave=true",
    "helm uninstall clinic -n silo-clinic",
)
def test_an_institutions_release_comes_changes_and_goes(kubectl: Kubectl, terminal: Terminal) -> None:
    terminal.environment["KUBECONFIG"] = str(kubectl.kubeconfig)
    (terminal.folder / "invitation.yaml").write_text(invitation(f"{NAMESPACE}/clinic").to_yaml())
    (values,) = blocks("docs/institution.md", "yaml")
    (terminal.folder / "clinic.yaml").write_text(values)
    install, show, listed, upgrade, leave, uninstall = terminal.commands

    terminal.type(install)
    assert "manualApproval: true" in terminal.type(show)
    made = kubectl.get("deployment", "fedsilo-connector", "-n", NAMESPACE)
    assert made["spec"]["replicas"] == 1
    assert terminal.type(listed).strip()
    decided = {"job": "uid-1", "specDigest": "a" * 64, "decision": "Refused", "note": "not this year"}
    patch = json.dumps({"spec": {"policy": {"approvals": [decided]}}})
    kubectl.run("patch", "silo", "clinic", "-n", NAMESPACE, "--type=merge", f"--patch={patch}")
    terminal.type(upgrade)
    terminal.type(leave)
    terminal.type(uninstall)
    kept = kubectl.get("silo", "clinic", "-n", NAMESPACE)["spec"]["policy"]["approvals"]
    assert [entry["note"] for entry in kept] == ["not this year"]
