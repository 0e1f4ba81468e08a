"""What is decided before any pod exists: whether a job can be run, whether each silo wants it, and how that is told."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.kubectl import Kubectl, Object
from tests.cluster.consortium import Consortium, consortium, golden
from tests.cluster.namespace import Namespace, until

EXPECTED = golden(Path(__file__).with_name("admission.golden"))

SECONDS = 3
"""In which the objections of all silos are there; one second, where the machine has nothing else to do."""

OTHER_IMAGE = f"registry.example/trainer@sha256:{'1' * 64}"

POLICIES: dict[str, dict[str, Any]] = {
    "clinic/narrow": {"methods": ["ccvr"], "maxRounds": 1, "trainerImages": [OTHER_IMAGE]},
    "hospital/wary": {"payloadKinds": ["class_counts"], "jobNamespaces": ["oncology"]},
    "clinic/asking": {"manualApproval": True},
    "clinic/open": {},
}


@pytest.fixture(scope="module")
def place(kubectl: Kubectl, operator: Namespace) -> Iterator[Consortium]:
    """Institutions with all kinds of policies. No job of theirs gets a pod but the one that is approved."""
    with consortium(kubectl, "clinic", "hospital", "closing", "laboratory") as made:
        broken = {"metadata": {"name": "fedsilo-signing-key"}, "data": {"key.pem": _base64("not a key")}}
        made.institution("laboratory").apply({"apiVersion": "v1", "kind": "Secret", **broken})
        silos = [made.silo(*place.split("/"), policy=policy) for place, policy in POLICIES.items()]
        silos.append(made.silo("laboratory", "keyless"))
        kubectl.apply(*silos)
        for silo in silos[:-1]:
            home = Namespace(kubectl, silo["metadata"]["namespace"])
            home.wait("silo", silo["metadata"]["name"], "condition=Ready")
        yield made


def test_two_silos_refuse_at_once_and_no_pod_is_made(place: Consortium) -> None:
    place.kubectl.apply(place.job("refused", "clinic/narrow", "hospital/wary", training={"rounds": 2}))
    silos = ("Silo narrow", "Silo wary")
    said = place.told("refused", "Admitted", "False", "PolicyRefused", *silos)
    assert said == EXPECTED["refused by two silos"]
    decided = _moment(place.condition("refused", "Admitted")["lastTransitionTime"])
    made = _moment(place.seen("refused")["metadata"]["creationTimestamp"])
    assert (decided - made).total_seconds() <= SECONDS
    assert place.pods("refused") == []
    for institution in ("clinic", "hospital"):
        assert place.agent(institution, "refused")["spec"]["suspend"] is True  # type: ignore[index]
        assert place.institution(institution).select("jobs") == []


def test_a_dataset_that_the_silo_has_not(place: Consortium) -> None:
    place.kubectl.apply(place.job("scans", "clinic/open", data={"dataset": "scans"}))
    said = place.told("scans", "Admitted", "False", "DatasetMissing")
    assert said == EXPECTED["no such dataset"]
    assert place.pods("scans") == []


def test_a_configuration_that_only_the_method_understands(place: Consortium) -> None:
    """The schema lets it pass, since plug-ins have settings of their own; the operator names all faults."""
    place.kubectl.apply(
        place.job(
            "misspelt",
            "clinic/open",
            method={"name": "fedconcat", "config": {"cluster": 2}},
            model={"name": "lenett"},
        )
    )
    assert place.told("misspelt", "Failed", "True", "ManifestInvalid") == EXPECTED["faults of the manifest"]
    assert place.agent("clinic", "misspelt") is None


def test_a_selector_that_finds_too_few(place: Consortium) -> None:
    place.institution("clinic").run("label", "silo", "open", "study=lung")
    chosen = {"selector": {"matchLabels": {"study": "lung"}}}
    place.kubectl.apply(place.job("few", silos=chosen, participation={"minSilos": 2}))
    assert place.told("few", "Accepted", "False", "QuorumImpossible") == EXPECTED["too few silos"]
    place.institution("hospital").run("label", "silo", "wary", "study=lung")
    place.reached("few", "Accepted", "True", "Accepted")
    place.reached("few", "Admitted", "False", "PolicyRefused")
    assert place.pods("few") == []


def test_a_silo_whose_key_is_broken(place: Consortium) -> None:
    place.kubectl.apply(place.job("keyless", "laboratory/keyless"))
    said = place.told("keyless", "Accepted", "False", "SiloNotReady")
    assert said == EXPECTED["broken key"]
    place.institution("laboratory").delete("secret", "fedsilo-signing-key")
    # Secrets are not watched, so the operator is shown the Silo instead of waiting for its next look.
    place.institution("laboratory").run("annotate", "silo", "keyless", "example.com/look=again")
    place.reached("keyless", "Accepted", "True", "Accepted")


def test_an_institution_that_is_going_or_was_never_there(place: Consortium) -> None:
    """A namespace that cannot end, since something in it is held, has no Silos any more and takes no SiloAgent."""
    going = place.institution("closing")
    held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    going.apply({"apiVersion": "v1", "kind": "ConfigMap", **held}, place.silo("closing", "last"))
    place.kubectl.run("delete", "namespace", going.name, "--wait=false")
    try:
        until(lambda: going.find("silo", "last") is None, "the Silo to go with its namespace")
        place.kubectl.apply(place.job("gone", "clinic/open", "closing/last", "nowhere/lost"))
        assert place.told("gone", "Accepted", "False", "SiloNotFound") == EXPECTED["no such silos"]
        assert place.pods("gone") == []
    finally:
        going.run("patch", "configmap", "held", "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')


def test_a_volume_of_another_is_neither_used_nor_deleted(place: Consortium) -> None:
    job = _suspended(place, "taken", "clinic/open")
    claim = _claim_of_another(job)
    place.jobs.apply(claim)
    place.jobs.run("patch", "federatedjob", "taken", "--type=merge", "--patch", '{"spec":{"suspend":false}}')
    said = place.told("taken", "Accepted", "False", "VolumeMissing")
    assert said == EXPECTED["volume of another"]
    name = claim["metadata"]["name"]
    assert place.jobs.get("pvc", name)["metadata"]["labels"] == claim["metadata"]["labels"]
    assert place.pods("taken") == []


def test_a_person_refuses(place: Consortium) -> None:
    place.kubectl.apply(place.job("unwanted", "clinic/asking"))
    place.reached("unwanted", "Admitted", "False", "ApprovalPending")
    _decide(place, "refuse", "unwanted", "--note", "No imaging studies before May.")
    said = place.told("unwanted", "Admitted", "False", "ApprovalRefused")
    assert said == EXPECTED["refused by a person"]
    assert place.pods("unwanted") == []


def test_from_a_missing_silo_over_an_approval_to_the_model_and_beyond(place: Consortium) -> None:
    place.kubectl.apply(place.job("patient", "clinic/late"))
    assert place.told("patient", "Accepted", "False", "SiloNotFound") == EXPECTED["silo to come"]

    place.kubectl.apply(place.silo("clinic", "late", policy={"manualApproval": True}))
    said = place.told("patient", "Admitted", "False", "ApprovalPending")
    assert said == EXPECTED["approval to come"]
    assert place.pods("patient") == []

    _decide(place, "approve", "patient")
    place.reached("patient", "Complete", "True", "Complete")
    claim = place.seen("patient")["status"]["model"]["claim"]
    events = _events(place, "patient")
    assert [reason for _, reason, _ in events if reason == "Running"] == ["Running"], events
    assert {count for _, _, count in events} == {1}, "each once"

    place.jobs.run(
        "patch", "fj", "patient", "--type=merge", "--patch", '{"spec":{"ttlSecondsAfterFinished":0}}'
    )
    until(lambda: place.jobs.find("federatedjob", "patient") is None, "the job to expire")
    assert place.jobs.get("pvc", claim)["status"]["phase"] == "Bound"
    assert place.agent("clinic", "patient") is None


def test_a_key_that_is_being_made_alarms_nobody(place: Consortium) -> None:
    """The last of these tests: of all jobs above, only that of the broken key was a warning."""
    warned = {job for job in ("patient", "unwanted", "few", "scans") for _ in _warnings(place, job)}
    assert not warned


def _warnings(place: Consortium, job: str) -> list[str]:
    keys = ("SiloNotReady", "KeyPending")
    return [reason for kind, reason, _ in _events(place, job) if kind == "Warning" and reason in keys]


def _events(place: Consortium, job: str) -> list[tuple[str, str, int]]:
    """Type, reason and count."""
    about = f"--field-selector=involvedObject.kind=FederatedJob,involvedObject.name={job}"
    found = place.kubectl.get("-n", place.jobs.name, "events", about)["items"]
    return [(event["type"], event["reason"], event["count"]) for event in found]


def _decide(place: Consortium, verb: str, job: str, *arguments: str) -> None:
    agent = until(lambda: place.agent("clinic", job), f"the agent of {job}")
    name, home = agent["metadata"]["name"], place.institution("clinic").name
    place.kubectl.fedsilo(verb, name, "-n", home, "--yes", *arguments)


def _suspended(place: Consortium, name: str, silo: str) -> Object:
    place.kubectl.apply(place.job(name, silo, suspend=True))
    return place.seen(name)


def _claim_of_another(job: Object) -> Object:
    """A claim under the name of this job's, with the labels of an aggregator's, but of another job."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    labels = {
        "app.kubernetes.io/managed-by": "fedsilo-operator",
        "app.kubernetes.io/component": "aggregator",
        "fedsilo.io/job-name": name,
        "fedsilo.io/job-namespace": job["metadata"]["namespace"],
        "fedsilo.io/job-uid": "00000000-0000-4000-8000-000000000000",
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-{uid[:8]}", "labels": labels},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
