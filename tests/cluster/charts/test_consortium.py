"""A consortium as its members set it up: one operator and four silos by helm, the job by kubectl."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from hack.cluster.kubectl import Kubectl
from hack.cluster.paths import KUBECONFIG
from hack.examples import documents
from hack.images import reference
from hack.operator import NAMESPACE, ROLES, install, uninstall
from tests.cluster.charts.helm import OPERATOR, SILO, Helm, Values, quickstart
from tests.cluster.federation import RESTRICTED, Federation, signal
from tests.cluster.namespace import Namespace, until
from tests.integration.local.runs import run
from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(900)

MANIFEST = ROOT / "examples" / "quickstart.yaml"
SILOS = ("north", "east", "south", "west")
KEY = "fedsilo-signing-key"
HELM = Helm(KUBECONFIG)


def images() -> Values:
    """The images of this tree, as the chart names images."""
    names = {role: reference(role).rsplit(":", 1) for role in ("operator", *ROLES)}
    return {"images": {role: {"repository": name, "tag": tag} for role, (name, tag) in names.items()}}


@pytest.fixture(scope="module")
def released(kubectl: Kubectl, operator: Namespace) -> Iterator[Namespace]:
    """The operator as a release, in place of the one that the other tests share."""
    uninstall(kubectl)
    try:
        release("install", "--create-namespace", **images())
        yield operator
    finally:
        HELM.run("uninstall", "fedsilo", "-n", NAMESPACE, "--wait")
        uninstall(kubectl)
        install(kubectl)


@pytest.fixture(scope="module")
def federation(kubectl: Kubectl, released: Namespace) -> Iterator[Federation]:
    """The quickstart's institutions, each with a release of its own, and its job, which is not yet applied."""
    job = next(item for item in documents(MANIFEST.name) if item["kind"] == "FederatedJob")
    job["spec"]["participation"]["roundDeadline"] = "10m"
    places = [job["metadata"]["namespace"], *(quickstart(name)[0] for name in SILOS)]
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}
        for name in places
    ]
    found = Federation(kubectl, (*spaces, job))
    kubectl.run("delete", "namespace", *places, "--ignore-not-found", "--wait", timeout=180)
    kubectl.apply(*spaces)
    for name in SILOS:
        silo("install", name)
    try:
        yield found
    except Exception:
        print(found.story())
        raise
    finally:
        found.home.run("delete", "federatedjobs", "--all", "--wait", timeout=90)
        for name in SILOS:
            HELM.run("uninstall", name, "-n", quickstart(name)[0], "--ignore-not-found")
        found.remove()


def release(verb: str, *options: str, **values: Any) -> None:
    """Install or upgrade the operator, and wait until it is ready."""
    HELM.run(
        *(verb, "fedsilo", str(OPERATOR), "-n", NAMESPACE, "--wait", "--timeout", "2m", *options),
        values=values,
        timeout=150,
    )


def silo(verb: str, name: str, **values: Any) -> None:
    """Install or upgrade the release of an institution."""
    namespace, given = quickstart(name)
    HELM.run(verb, name, str(SILO), "-n", namespace, values=given | values)


@runs("charts/fedsilo/README.md", "helm test fedsilo -n fedsilo-system")
def test_every_operator_has_seen_the_whole_cluster(released: Namespace, terminal: Terminal) -> None:
    (command,) = terminal.commands
    assert "Phase:          Succeeded" in terminal.type(command)
    assert not released.select("pods", "app.kubernetes.io/component=test")


def test_an_upgrade_of_operator_and_silos_costs_a_running_job_no_round(
    kubectl: Kubectl, released: Namespace, federation: Federation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kubectl.apply(federation.job)
    federation.round_reached(3)
    east = Namespace(kubectl, quickstart("east")[0])
    held = federation.pod(east, "trainer")
    signal(east, held, "SIGSTOP")  # the round cannot end meanwhile, however fast the machine is
    before = {place.name: pods(place) for place in federation.namespaces}
    release("upgrade", **images(), resources={"requests": {"cpu": "60m", "memory": "128Mi"}})
    policy = quickstart("north")[1]["policy"]
    silo("upgrade", "north", policy=policy | {"maxRounds": 500})
    assert 3 <= federation.status()["round"] < federation.status()["rounds"]
    assert {place.name: pods(place) for place in federation.namespaces} == before

    signal(east, held, "SIGCONT")

    ended = federation.ended()
    here = run(MANIFEST, tmp_path_factory.mktemp("quickstart") / "run")
    assert here.code == 0, here.err
    assert ended["model"]["sha256"] == here.document["model"]["sha256"]
    assert ended["progress"] == f"{ended['rounds']}/{ended['rounds']}"


def test_a_silo_that_is_uninstalled_and_installed_again_keeps_its_key(
    kubectl: Kubectl, released: Namespace, federation: Federation
) -> None:
    place = Namespace(kubectl, quickstart("north")[0])
    key, secret = public_key(place), place.get("secret", KEY)
    HELM.run("uninstall", "north", "-n", place.name, "--wait")
    silo("install", "north")
    assert public_key(place) == key
    assert place.get("secret", KEY)["metadata"]["uid"] == secret["metadata"]["uid"]

    job = {**federation.job, "metadata": {**federation.job["metadata"], "name": "again"}}
    job["spec"] = {**job["spec"], "training": {**job["spec"]["training"], "rounds": 3}}
    job["spec"]["method"] = {"name": "fedavg"}
    again = dataclasses.replace(federation, objects=(*federation.objects[:-1], job))
    kubectl.apply(job)
    assert again.ended()["progress"] == "3/3"


def pods(place: Namespace) -> set[str]:
    """Identities of the pods, that started once and never again."""
    found = place.select("pods")
    assert not any(
        status["restartCount"] for pod in found for status in pod["status"].get("containerStatuses", ())
    )
    return {pod["metadata"]["uid"] for pod in found}


def public_key(place: Namespace) -> str:
    """What the silo publishes."""

    def published() -> str | None:
        found = place.find("silo", "north") or {}
        return str(found.get("status", {}).get("publicKey") or "") or None

    return until(published, f"the key of {place.name}")
