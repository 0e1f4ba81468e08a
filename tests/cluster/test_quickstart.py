"""The quickstart on a real cluster, as its reader types it: from `kubectl apply` to the model in a file."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import operator as installation
from hack.cluster.kubectl import Kubectl
from hack.examples import documents
from tests.cluster.federation import END_SECONDS, ClusterFederation
from tests.cluster.namespace import RESTRICTED_LABELS, Namespace, wait_until
from tests.integration.local.runs import FEDSILO, run
from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(900)

MANIFEST = ROOT / "examples" / "quickstart.yaml"
SILOS = ("north", "east", "south", "west")

WRITTEN_KINDS = (
    "federatedjobs,silos,siloagents,jobs,services,configmaps,secrets,persistentvolumeclaims,serviceaccounts,"
    "roles,rolebindings,networkpolicies,events"
)
"""Kinds that the operator writes."""

QUIET_SECONDS = 10.0
"""In which an operator that has just been woken would have written what it wants to write."""


@pytest.fixture(scope="module")
def places(kubectl: Kubectl, operator: Namespace) -> Iterator[ClusterFederation]:
    """The federation of the file, of which there are the namespaces only."""
    found = ClusterFederation(kubectl, tuple(documents(MANIFEST.name)))
    found.remove(wait=True)
    try:
        for namespace in found.namespaces:
            metadata = {"name": namespace.name, "labels": RESTRICTED_LABELS}
            kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        yield found
    finally:
        found.remove()


@pytest.fixture(scope="module")
def quickstart(places: ClusterFederation) -> ClusterFederation:
    """The quickstart's federation after its job is complete."""
    places.kubectl.run("apply", "-f", str(MANIFEST))
    try:
        places.home.wait("federatedjob", "digits", "condition=Complete", END_SECONDS)
    except AssertionError:
        print(places.story())
        raise
    return places


@runs(
    "README.md",
    "make cluster-up images",
    "export KUBECONFIG=/var/lib/fedsilo-cluster/kubeconfig PATH=/var/lib/fedsilo-cluster/bin:$PWD/.venv/bin:$PATH",
    "kubectl apply -k hack/install",
    "kubectl apply -f examples/quickstart.yaml",
    "kubectl -n federation wait fj/digits --for=condition=Complete --timeout=5m",
    "kubectl -n federation get fj",
    "kubectl fedsilo why digits -n federation",
    "kubectl fedsilo status digits -n federation",
    "kubectl fedsilo model digits -n federation -o model.safetensors",
    "kubectl port-forward -n fedsilo-system deployment/fedsilo-operator 8081",
)
def test_the_readme_from_the_cluster_to_the_model(
    places: ClusterFederation, operator: Namespace, terminal: Terminal, local_result: dict[str, Any]
) -> None:
    up, export, install, apply, wait, get, why, status, model, forward = terminal.commands
    del terminal.environment["KUBECONFIG"]
    terminal.type(up)
    terminal.type(export)
    before = arguments(operator)
    terminal.type(install)
    assert arguments(operator) == before, "the overlay changes images alone"
    operator.run("rollout", "status", "deployment/fedsilo-operator", "--timeout=120s", timeout=130)
    terminal.type(apply)
    terminal.type(wait)
    result = places.status()
    header, row = terminal.type(get).splitlines()
    assert header.split() == ["NAME", "STATE", "ROUND", "SILOS", "SCORE", "METHOD", "AGE"]
    score = f"accuracy={result['metrics']['accuracy']:.4g}"
    assert row.split()[:-1] == ["digits", "Complete", "36/36", "4/4", score, "fedconcat"]
    said = terminal.type(why)
    assert said.startswith("Job federation/digits is complete since ")
    assert "36 of 36 rounds" in said and f"`{model}`" in said
    shown = terminal.type(status)
    assert shown.startswith("federation/digits  Complete  fedconcat, lenet\n")
    assert result["model"]["sha256"] in shown
    terminal.type(model)
    fetched = (terminal.folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(fetched).hexdigest() == local_result["model"]["sha256"]
    with terminal.start_command(forward) as forwarding:
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline().startswith("Forwarding from ")
        with urllib.request.urlopen("http://127.0.0.1:8081/api/jobs/federation/digits", timeout=30) as page:
            assert json.load(page)["state"] == "Complete"
    reader = "app.kubernetes.io/component=model-reader"
    wait_until(lambda: not places.home.select("pods", reader), "the pod that read it to go")


@pytest.fixture(scope="module")
def local_result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `fedsilo run` says of the same file on this machine."""
    ended = run(MANIFEST, tmp_path_factory.mktemp("quickstart") / "run")
    assert ended.code == 0, ended.err
    return ended.document


def test_nothing_that_was_applied_is_changed(quickstart: ClusterFederation) -> None:
    """A tool that compares the files with the cluster, as Argo CD does, finds them in step."""
    kubectl = quickstart.kubectl
    assert kubectl.run("diff", "-f", str(MANIFEST)) == ""
    # The Deployment names images of this tree.
    installed = [item for item in installation.rendered_objects(kubectl) if item["kind"] != "Deployment"]
    assert kubectl.run("diff", "-f", "-", stdin=yaml.safe_dump_all(installed)) == ""


def test_the_model_is_the_one_that_fedsilo_run_gives(
    quickstart: ClusterFederation, local_result: dict[str, Any]
) -> None:
    status = quickstart.status()
    assert status["model"]["sha256"] == local_result["model"]["sha256"]
    assert status["metrics"]["accuracy"] == pytest.approx(local_result["metrics"]["accuracy"], abs=1e-3)
    assert {silo["name"]: (silo["phase"], silo["lastRound"]) for silo in status["silos"]} == dict.fromkeys(
        SILOS, ("Finished", status["rounds"])
    )


def arguments(operator: Namespace) -> list[str]:
    """What the operator is started with."""
    (container,) = operator.get("deployment", "fedsilo-operator")["spec"]["template"]["spec"]["containers"]
    return [container["image"], *container["args"]]


def test_nothing_is_written_any_more(quickstart: ClusterFederation) -> None:
    """However often the operator looks at it: both controllers are woken once more."""
    wait_until(lambda: _settled(quickstart), "the federation to settle")
    for namespace in quickstart.namespaces:
        for kind in ("federatedjobs", "silos", "siloagents"):
            namespace.run("annotate", kind, "--all", "--overwrite", "example.com/look=again")
    before = _versions(quickstart)
    time.sleep(QUIET_SECONDS)
    assert _versions(quickstart) == before


def _settled(quickstart: ClusterFederation) -> bool:
    before = _versions(quickstart)
    time.sleep(QUIET_SECONDS / 4)
    return _versions(quickstart) == before


def _versions(quickstart: ClusterFederation) -> dict[str, str]:
    """Resource version of everything in the federation's namespaces that the operator could write."""
    return {
        f"{namespace.name} {item['kind']} {item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for namespace in quickstart.namespaces
        for item in namespace.select(WRITTEN_KINDS)
    }


def test_every_log_can_be_read(kubectl: Kubectl, quickstart: ClusterFederation) -> None:
    lines = kubectl.fedsilo("logs", "digits", "-n", "federation").splitlines()
    parts = {line.partition(" ")[0] for line in lines}
    assert parts == {"[aggregator]"} | {f"[{silo}/{part}]" for silo in SILOS for part in ("guard", "trainer")}


def test_the_model_is_evaluated_as_on_this_machine(
    kubectl: Kubectl, quickstart: ClusterFederation, local_result: dict[str, Any], tmp_path: Path
) -> None:
    model = tmp_path / "model.safetensors"
    kubectl.fedsilo("model", "digits", "-n", "federation", "-o", str(model))
    evaluate = [
        sys.executable,
        "-m",
        FEDSILO,
        "evaluate",
        "--model",
        str(model),
        "-f",
        str(MANIFEST),
        "--json",
    ]
    said = json.loads(subprocess.run(evaluate, check=True, capture_output=True, text=True).stdout)
    assert said["accuracy"] == pytest.approx(local_result["metrics"]["accuracy"], abs=1e-6)
