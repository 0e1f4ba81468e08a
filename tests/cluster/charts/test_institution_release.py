"""Releases in an institution's own cluster, on an API server: they come, change and go, as the pages say, and what the
institution decided stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.apiserver import api_server
from hack.cluster.kubectl import Kubectl
from tests.cluster.charts.helm import SILO, Helm, invitation
from tests.cluster.charts.pods import pods_run_here
from tests.pages import blocks, runs
from tests.terminal import Terminal

NAMESPACE = "silo-clinic"
KEY = "fedsilo-signing-key"


@pytest.fixture
def kubectl() -> Iterator[Kubectl]:
    """An API server without a node. It serves what a release defines long after Helm has asked for it."""
    with api_server("institution", controllers=True, one_of=2) as kubeconfig:
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

    with pods_run_here(kubectl, terminal.folder):
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


WAITS = "app.kubernetes.io/name=north-definitions"
"""Label of what is there until the API server serves a release's definitions."""


@runs(
    "charts/fedsilo-silo/README.md",
    "helm install north charts/fedsilo-silo -n silo-north --create-namespace -f invitation.yaml -f north.yaml",
    "kubectl describe silo north -n silo-north",
)
def test_an_institutions_own_cluster_is_installed_uninstalled_and_goes_on(
    kubectl: Kubectl, terminal: Terminal
) -> None:
    terminal.environment["KUBECONFIG"] = str(kubectl.kubeconfig)
    helm, here = Helm(kubectl.kubeconfig), ("-n", "silo-north")
    (values,) = blocks("charts/fedsilo-silo/README.md", "yaml")
    (terminal.folder / "north.yaml").write_text(values)
    (terminal.folder / "invitation.yaml").write_text(invitation("silo-north/north").to_yaml())
    install, shown = terminal.commands
    with pods_run_here(kubectl, terminal.folder):
        terminal.type(install)
    assert kubectl.get("pods,serviceaccounts,networkpolicies", *here, "-l", WAITS)["items"] == []
    defined = {item["metadata"]["name"] for item in kubectl.get("crd")["items"]}
    assert defined == {"silos.fedsilo.io", "siloagents.fedsilo.io"}
    said = {"type": "HubReached", "status": "False", "reason": "EnrolmentPending", "message": "ab12-cd34"}
    status = {"conditions": [said | {"lastTransitionTime": "2026-01-02T03:04:05Z"}]}
    kubectl.run(
        *("patch", "silo", "north", *here, "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": status})),
    )
    assert "ab12-cd34" in terminal.type(shown)
    kubectl.run("create", "secret", "generic", KEY, *here, "--from-literal=key.pem=x")
    approval = {"job": "a-uid", "specDigest": "0" * 64, "decision": "Approved"}
    kubectl.run(
        *("patch", "silo", "north", *here, "--type=merge", "--field-manager=fedsilo-approval"),
        *("-p", json.dumps({"spec": {"policy": {"approvals": [approval]}}})),
    )

    def stay() -> list[str]:
        kept = [("secret", KEY, *here), ("silo", "north", *here), ("crd", "silos.fedsilo.io")]
        return [kubectl.get(*what)["metadata"]["uid"] for what in kept]

    before = stay()
    files = [
        part for name in ("invitation", "north") for part in ("-f", str(terminal.folder / f"{name}.yaml"))
    ]
    helm.run("upgrade", "north", str(SILO), *here, *files, "--set", "policy.maxRounds=9")
    assert kubectl.get("silo", "north", *here)["spec"]["policy"]["maxRounds"] == 9
    assert stay() == before
    helm.run("uninstall", "north", *here, "--wait")
    assert stay() == before
    assert kubectl.get("deployments,roles,rolebindings", *here)["items"] == []
    terminal.type(install)
    assert stay() == before
    policy = kubectl.get("silo", "north", *here)["spec"]["policy"]
    assert [each["job"] for each in policy["approvals"]] == ["a-uid"]


def test_a_release_whose_wait_has_failed_is_completed_by_an_upgrade(kubectl: Kubectl, tmp_path: Path) -> None:
    """The wait fails because no node runs the pod, as where the image cannot be pulled."""
    helm = Helm(kubectl.kubeconfig)
    (tmp_path / "invitation.yaml").write_text(invitation(f"{NAMESPACE}/clinic").to_yaml())
    (values,) = blocks("docs/institution.md", "yaml")
    (tmp_path / "clinic.yaml").write_text(values)
    files = [item for name in ("invitation", "clinic") for item in ("-f", str(tmp_path / f"{name}.yaml"))]
    given = ("clinic", str(SILO), "-n", NAMESPACE, *files)
    said = helm.refusal("install", *given, "--create-namespace", "--timeout", "3s")
    assert "failed post-install" in said
    assert f"{NAMESPACE}/clinic-definitions not ready" in said
    assert kubectl.get("pods", "-n", NAMESPACE)["items"] == []

    kubectl.run("wait", "--for=condition=Established", "crd", "--all")
    helm.run("upgrade", *given)
    assert kubectl.get("silo", "clinic", "-n", NAMESPACE)["spec"]["policy"]["manualApproval"] is True
