"""docs/institution.md on an API server: an institution's release comes, changes and goes, and what it decided stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.apiserver import api_server
from hack.cluster.kubectl import Kubectl
from tests.cluster.charts.helm import SILO, Helm, invitation, objects
from tests.pages import blocks, runs
from tests.terminal import Terminal

NAMESPACE = "silo-clinic"

TOO_EARLY = 'no matches for kind "Silo"'
"""What Helm says when the API server does not serve yet what the release has just defined."""


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

    try:
        terminal.type(install)
    except AssertionError as failed:
        # The page says what to do then.
        assert TOO_EARLY in str(failed)
        terminal.type(upgrade)
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


def test_a_release_that_came_before_its_kinds_were_served_is_completed_by_an_upgrade(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    """An API server that takes its time with a release's definitions: here they come after it."""
    early = shutil.copytree(SILO, tmp_path / SILO.name)
    definitions = shutil.move(early / "templates/crds", tmp_path / "crds")
    helm = Helm(kubectl.kubeconfig)
    (tmp_path / "invitation.yaml").write_text(invitation(f"{NAMESPACE}/clinic").to_yaml())
    (values,) = blocks("docs/institution.md", "yaml")
    (tmp_path / "clinic.yaml").write_text(values)
    files = [item for name in ("invitation", "clinic") for item in ("-f", str(tmp_path / f"{name}.yaml"))]
    given = ("-n", NAMESPACE, *files)
    assert TOO_EARLY in helm.refusal("install", "clinic", str(early), "--create-namespace", *given)

    shutil.copytree(definitions, early / "templates/crds")
    made = objects(helm.run("template", "clinic", str(early), *given, "--show-only", "templates/crds/*.yaml"))
    release = {"meta.helm.sh/release-namespace": NAMESPACE, "meta.helm.sh/release-name": "clinic"}
    for definition in made:
        definition["metadata"].setdefault("annotations", {}).update(release)
    text = "\n".join(f"---\n{json.dumps(definition)}" for definition in made)
    kubectl.run("apply", "--server-side", "--field-manager=helm", "-f", "-", stdin=text)
    kubectl.run("wait", "--for=condition=Established", *(f"crd/{item['metadata']['name']}" for item in made))
    helm.run("upgrade", "clinic", str(SILO), *given)
    assert kubectl.get("silo", "clinic", "-n", NAMESPACE)["spec"]["policy"]["manualApproval"] is True
