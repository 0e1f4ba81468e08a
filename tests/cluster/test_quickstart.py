"""The quickstart on a real cluster, as its reader types it: from `kubectl apply` to the model in a file."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.federation import END, RESTRICTED, Federation
from tests.cluster.kubectl import Kubectl, Namespace, until
from tests.cluster.operator import documents
from tests.integration.local.runs import FEDSILO, run
from tests.paths import ROOT

pytestmark = pytest.mark.timeout(900)

MANIFEST = ROOT / "examples" / "quickstart.yaml"
SILOS = ("north", "east", "south", "west")

WRITTEN = (
    "federatedjobs,silos,siloagents,jobs,services,configmaps,secrets,persistentvolumeclaims,serviceaccounts,"
    "roles,rolebindings,networkpolicies,events"
)
"""Kinds that the operator writes."""

QUIET = 10.0
"""Seconds in which an operator that has just been woken would have written what it wants to write."""


@pytest.fixture(scope="module")
def quickstart(kubectl: Kubectl, operator: Namespace) -> Iterator[Federation]:
    """The federation of the file in its own namespaces, complete."""
    found = Federation(kubectl, tuple(documents(MANIFEST.name)))
    found.remove(wait=True)
    try:
        for namespace in found.namespaces:
            metadata = {"name": namespace.name, "labels": RESTRICTED}
            kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        kubectl.run("apply", "-f", str(MANIFEST))
        try:
            found.home.wait("federatedjob", "digits", "condition=Complete", END)
        except AssertionError:
            print(found.story())
            raise
        yield found
    finally:
        found.remove()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `fedsilo run` says of the same file on this machine."""
    ended = run(MANIFEST, tmp_path_factory.mktemp("quickstart") / "run")
    assert ended.code == 0, ended.err
    return ended.document


def test_the_model_is_the_one_that_fedsilo_run_gives(quickstart: Federation, here: dict[str, Any]) -> None:
    status = quickstart.status()
    assert status["model"]["sha256"] == here["model"]["sha256"]
    assert status["metrics"]["accuracy"] == pytest.approx(here["metrics"]["accuracy"], abs=1e-3)
    assert {silo["name"]: (silo["phase"], silo["lastRound"]) for silo in status["silos"]} == dict.fromkeys(
        SILOS, ("Finished", status["rounds"])
    )


def test_nothing_is_written_any_more(quickstart: Federation) -> None:
    """However often the operator looks at it: both controllers are woken once more."""
    until(lambda: _settled(quickstart), "the federation to settle")
    for namespace in quickstart.namespaces:
        for kind in ("federatedjobs", "silos", "siloagents"):
            namespace.run("annotate", kind, "--all", "--overwrite", "example.com/look=again")
    before = _versions(quickstart)
    time.sleep(QUIET)
    assert _versions(quickstart) == before


def _settled(quickstart: Federation) -> bool:
    before = _versions(quickstart)
    time.sleep(QUIET / 4)
    return _versions(quickstart) == before


def _versions(quickstart: Federation) -> dict[str, str]:
    """Resource version of everything in the federation's namespaces that the operator could write."""
    return {
        f"{namespace.name} {item['kind']} {item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for namespace in quickstart.namespaces
        for item in namespace.select(WRITTEN)
    }


def test_what_people_see(kubectl: Kubectl, quickstart: Federation) -> None:
    status = quickstart.status()
    header, row = quickstart.home.run("get", "fj").splitlines()
    assert header.split() == ["NAME", "STATE", "ROUND", "SILOS", "ACCURACY", "METHOD", "AGE"]
    accuracy = str(status["metrics"]["accuracy"])
    assert row.split()[:-1] == ["digits", "Complete", "36/36", "4/4", accuracy, "fedconcat"]

    shown = kubectl.fedsilo("status", "digits", "-n", "federation")
    assert shown.startswith("federation/digits  Complete  fedconcat, lenet\n")
    assert status["model"]["sha256"] in shown
    why = kubectl.fedsilo("why", "digits", "-n", "federation")
    assert why.startswith("Job federation/digits is complete since ")
    assert "36 of 36 rounds" in why
    assert "`kubectl fedsilo model digits -n federation -o model.safetensors`" in why


def test_every_log_can_be_read(kubectl: Kubectl, quickstart: Federation) -> None:
    lines = kubectl.fedsilo("logs", "digits", "-n", "federation").splitlines()
    parts = {line.partition(" ")[0] for line in lines}
    assert parts == {"[aggregator]"} | {f"[{silo}/{part}]" for silo in SILOS for part in ("guard", "trainer")}


def test_the_model_is_fetched_and_evaluated(
    kubectl: Kubectl, quickstart: Federation, here: dict[str, Any], tmp_path: Path
) -> None:
    model = tmp_path / "model.safetensors"
    kubectl.fedsilo("model", "digits", "-n", "federation", "-o", str(model))
    assert hashlib.sha256(model.read_bytes()).hexdigest() == quickstart.status()["model"]["sha256"]
    reader = "app.kubernetes.io/component=model-reader"
    until(lambda: not quickstart.home.select("pods", reader), "the pod that read it to go")
    evaluate = [*FEDSILO, "evaluate", "--model", str(model), "-f", str(MANIFEST), "--json"]
    said = json.loads(subprocess.run(evaluate, check=True, capture_output=True, text=True).stdout)
    assert said["accuracy"] == pytest.approx(here["metrics"]["accuracy"], abs=1e-6)
