"""What is decided before any pod exists: whether a job can be run, whether each silo wants it, and how that is told."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from tests.cluster.consortium import Consortium, golden, new_consortium
from tests.cluster.namespace import Namespace, wait_until

EXPECTED_TEXTS = golden(Path(__file__).with_name("admission.golden"))

MAX_DECISION_SECONDS = 10
"""In which the objections of all silos are there: one second, where the machine has nothing else to do, and far less
than the operator takes for a look at what did not change."""

OTHER_IMAGE = f"registry.example/trainer@sha256:{'1' * 64}"

POLICIES: dict[str, dict[str, Any]] = {
    "clinic/narrow": {"methods": ["ccvr"], "maxRounds": 1, "trainerImages": [OTHER_IMAGE]},
    "hospital/wary": {"payloadKinds": ["class_counts"], "jobNamespaces": ["oncology"]},
    "clinic/asking": {"manualApproval": True},
    "clinic/open": {},
}


@pytest.fixture(scope="module")
def consortium(kubectl: Kubectl, operator: Namespace) -> Iterator[Consortium]:
    """Institutions with all kinds of policies. No job of theirs gets a pod but the one that is approved."""
    with new_consortium(kubectl, "clinic", "hospital", "closing", "laboratory") as made:
        broken = {"metadata": {"name": "fedsilo-signing-key"}, "data": {"key.pem": _base64("not a key")}}
        made.institution("laboratory").apply({"apiVersion": "v1", "kind": "Secret", **broken})
        silos = [made.silo(*place.split("/"), policy=policy) for place, policy in POLICIES.items()]
        silos.append(made.silo("laboratory", "keyless"))
        kubectl.apply(*silos)
        for silo in silos[:-1]:
            home = Namespace(kubectl, silo["metadata"]["namespace"])
            home.wait("silo", silo["metadata"]["name"], "condition=Ready")
        yield made


def test_two_silos_refuse_at_once_and_no_pod_is_made(consortium: Consortium) -> None:
    consortium.kubectl.apply(
        consortium.job("refused", "clinic/narrow", "hospital/wary", training={"rounds": 2})
    )
    silos = ("Silo narrow", "Silo wary")
    said = consortium.condition_report("refused", "Admitted", "False", "PolicyRefused", *silos)
    assert said == EXPECTED_TEXTS["refused by two silos"]
    decided = _time(consortium.condition("refused", "Admitted")["lastTransitionTime"])
    made = _time(consortium.observed_job("refused")["metadata"]["creationTimestamp"])
    assert (decided - made).total_seconds() <= MAX_DECISION_SECONDS
    assert consortium.pods("refused") == []
    for institution in ("clinic", "hospital"):
        assert consortium.agent(institution, "refused")["spec"]["suspend"] is True  # type: ignore[index]
        assert consortium.institution(institution).select("jobs") == []


def test_a_dataset_that_the_silo_has_not(consortium: Consortium) -> None:
    consortium.kubectl.apply(consortium.job("scans", "clinic/open", data={"dataset": "scans"}))
    said = consortium.condition_report("scans", "Admitted", "False", "DatasetMissing")
    assert said == EXPECTED_TEXTS["no such dataset"]
    assert consortium.pods("scans") == []
    assert not _key_warnings(consortium, "scans")


def test_a_configuration_that_only_the_method_understands(consortium: Consortium) -> None:
    """The schema lets it pass, since plug-ins have settings of their own; the operator names all faults."""
    consortium.kubectl.apply(
        consortium.job(
            "misspelt",
            "clinic/open",
            method={"name": "fedconcat", "config": {"cluster": 2}},
            model={"name": "lenett"},
        )
    )
    assert (
        consortium.condition_report("misspelt", "Failed", "True", "ManifestInvalid")
        == EXPECTED_TEXTS["faults of the manifest"]
    )
    assert consortium.agent("clinic", "misspelt") is None


def test_a_selector_that_finds_too_few(consortium: Consortium) -> None:
    consortium.institution("clinic").run("label", "silo", "open", "study=lung")
    chosen = {"selector": {"matchLabels": {"study": "lung"}}}
    consortium.kubectl.apply(consortium.job("few", silos=chosen, participation={"minSilos": 2}))
    assert (
        consortium.condition_report("few", "Accepted", "False", "QuorumImpossible")
        == EXPECTED_TEXTS["too few silos"]
    )
    consortium.institution("hospital").run("label", "silo", "wary", "study=lung")
    consortium.wait_for_condition("few", "Accepted", "True", "Accepted")
    consortium.wait_for_condition("few", "Admitted", "False", "PolicyRefused")
    assert consortium.pods("few") == []
    assert not _key_warnings(consortium, "few")


def test_a_silo_whose_key_is_broken(consortium: Consortium) -> None:
    consortium.kubectl.apply(consortium.job("keyless", "laboratory/keyless"))
    said = consortium.condition_report("keyless", "Accepted", "False", "SiloNotReady")
    assert said == EXPECTED_TEXTS["broken key"]
    consortium.institution("laboratory").delete("secret", "fedsilo-signing-key")
    # Secrets are not watched, so the operator is shown the Silo instead of waiting for its next look.
    consortium.institution("laboratory").run("annotate", "silo", "keyless", "example.com/look=again")
    consortium.wait_for_condition("keyless", "Accepted", "True", "Accepted")
    assert "SiloNotReady" in _key_warnings(consortium, "keyless")


def test_an_institution_that_is_going_or_was_never_there(consortium: Consortium) -> None:
    """A namespace that cannot end, since something in it is held, has no Silos any more and takes no SiloAgent."""
    going = consortium.institution("closing")
    held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}}
    going.apply({"apiVersion": "v1", "kind": "ConfigMap", **held}, consortium.silo("closing", "last"))
    consortium.kubectl.run("delete", "namespace", going.name, "--wait=false")
    try:
        wait_until(lambda: going.find("silo", "last") is None, "the Silo to go with its namespace")
        consortium.kubectl.apply(consortium.job("gone", "clinic/open", "closing/last", "nowhere/lost"))
        assert (
            consortium.condition_report("gone", "Accepted", "False", "SiloNotFound")
            == EXPECTED_TEXTS["no such silos"]
        )
        assert consortium.pods("gone") == []
    finally:
        going.run("patch", "configmap", "held", "--type=merge", "--patch", '{"metadata":{"finalizers":null}}')


def test_a_volume_of_another_is_neither_used_nor_deleted(consortium: Consortium) -> None:
    job = _apply_suspended_job(consortium, "taken", "clinic/open")
    claim = _claim_of_another(job)
    consortium.jobs.apply(claim)
    consortium.jobs.run(
        "patch", "federatedjob", "taken", "--type=merge", "--patch", '{"spec":{"suspend":false}}'
    )
    said = consortium.condition_report("taken", "Accepted", "False", "VolumeMissing")
    assert said == EXPECTED_TEXTS["volume of another"]
    name = claim["metadata"]["name"]
    assert consortium.jobs.get("pvc", name)["metadata"]["labels"] == claim["metadata"]["labels"]
    assert consortium.pods("taken") == []


def test_a_person_refuses(consortium: Consortium) -> None:
    consortium.kubectl.apply(consortium.job("unwanted", "clinic/asking"))
    consortium.wait_for_condition("unwanted", "Admitted", "False", "ApprovalPending")
    _decide(consortium, "refuse", "unwanted", "--note", "No imaging studies before May.")
    said = consortium.condition_report("unwanted", "Admitted", "False", "ApprovalRefused")
    assert said == EXPECTED_TEXTS["refused by a person"]
    assert consortium.pods("unwanted") == []
    assert not _key_warnings(consortium, "unwanted")


def test_from_a_missing_silo_over_an_approval_to_the_model_and_beyond(consortium: Consortium) -> None:
    consortium.kubectl.apply(consortium.job("patient", "clinic/late"))
    assert (
        consortium.condition_report("patient", "Accepted", "False", "SiloNotFound")
        == EXPECTED_TEXTS["silo to come"]
    )

    consortium.kubectl.apply(consortium.silo("clinic", "late", policy={"manualApproval": True}))
    said = consortium.condition_report("patient", "Admitted", "False", "ApprovalPending")
    assert said == EXPECTED_TEXTS["approval to come"]
    assert consortium.pods("patient") == []

    _decide(consortium, "approve", "patient")
    consortium.wait_for_condition("patient", "Complete", "True", "Complete")
    claim = consortium.observed_job("patient")["status"]["model"]["claim"]
    events = _events(consortium, "patient")
    assert [reason for _, reason, _ in events if reason == "Running"] == ["Running"], events
    assert {count for _, _, count in events} == {1}, "each once"
    assert not _key_warnings(consortium, "patient")

    consortium.jobs.run(
        "patch", "fj", "patient", "--type=merge", "--patch", '{"spec":{"ttlSecondsAfterFinished":0}}'
    )
    wait_until(lambda: consortium.jobs.find("federatedjob", "patient") is None, "the job to expire")
    assert consortium.jobs.get("pvc", claim)["status"]["phase"] == "Bound"
    assert consortium.agent("clinic", "patient") is None


def _key_warnings(consortium: Consortium, job: str) -> list[str]:
    """Warnings about a silo's key: one that is only being made is none."""
    keys = ("SiloNotReady", "KeyPending")
    return [reason for kind, reason, _ in _events(consortium, job) if kind == "Warning" and reason in keys]


def _events(consortium: Consortium, job: str) -> list[tuple[str, str, int]]:
    """Type, reason and count."""
    about = f"involvedObject.kind=FederatedJob,involvedObject.name={job}"
    found = consortium.jobs.select("events", fields=about)
    return [(event["type"], event["reason"], event["count"]) for event in found]


def _decide(consortium: Consortium, verb: str, job: str, *arguments: str) -> None:
    agent = wait_until(lambda: consortium.agent("clinic", job), f"the agent of {job}")
    name, home = agent["metadata"]["name"], consortium.institution("clinic").name
    consortium.kubectl.fedsilo(verb, name, "-n", home, "--yes", *arguments)


def _apply_suspended_job(consortium: Consortium, name: str, silo: str) -> Object:
    consortium.kubectl.apply(consortium.job(name, silo, suspend=True))
    return consortium.observed_job(name)


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


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
