"""What a silo has against a job, in the words that its consortium reads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.api.agent import Proposal, SiloAgent
from fedsilo.api.observed import Object
from fedsilo.api.proposal import proposal_digest, propose
from fedsilo.api.silo import Silo
from fedsilo.silo.objections import Objection, admission_note, objections
from tests.unit.operator.golden import sentences
from tests.unit.operator.silo.harness import (
    CERTIFICATE,
    KEY,
    OTHER_KEY,
    SETTINGS,
    START,
    UID,
    agent,
    job_spec,
    silo,
)

DIGEST = "sha256:" + "1" * 64
OTHER_DIGEST = "sha256:" + "2" * 64

Edit = Callable[[Object, Object], None]


def job(**changes: Any) -> Edit:
    def edit(one: Object, _other: Object) -> None:
        one.clear()
        one.update(agent(job_spec(**changes)))

    return edit


def policy(**changes: Any) -> Edit:
    return lambda _, offer: offer["spec"]["policy"].update(changes)


def dataset(**changes: Any) -> Edit:
    return lambda _, offer: offer["spec"]["datasets"][0].update(changes)


def spec(**changes: Any) -> Edit:
    return lambda one, _: one["spec"].update(changes)


def change_job(**changes: Any) -> Edit:
    return lambda one, _: one["spec"]["job"].update(changes)


def metadata(**changes: Any) -> Edit:
    return lambda one, _: one["metadata"].update(changes)


def publish_key(key: str) -> Edit:
    return lambda _, offer: offer["status"].update(publicKey=key)


def decide_job(decision: str, note: str = "", **changes: Any) -> Edit:
    def edit(one: Object, offer: Object) -> None:
        entry = {
            "job": UID,
            "specDigest": one["spec"]["job"]["specDigest"],
            "proposal": proposal_digest(proposal_of(SiloAgent.model_validate(one))),
            "decision": decision,
            "note": note,
        }
        offer["spec"]["policy"].setdefault("approvals", []).append(entry | changes)

    return edit


def proposal_of(one: SiloAgent) -> Proposal:
    image = one.spec.job.spec.agents.image or SETTINGS.trainer_image
    return propose(one.spec, image, SETTINGS.guard_image)


CCVR = {"name": "ccvr", "config": {"after": {"name": "fedavg"}}}

LABELLED_AGENTS = {
    "podTemplate": {"metadata": {"labels": {"study": "lungs"}, "annotations": {"team": "blue"}}}
}

CASES: dict[str, tuple[Edit, ...]] = {
    "method": (policy(methods=["creff", "ccvr"]),),
    "a long list of methods": (policy(methods=[f"method-{number}" for number in range(14)]),),
    "payload kinds": (job(method=CCVR),),
    "rounds": (policy(maxRounds=10),),
    "bytes that are known before the model": (
        job(method={"name": "fedconcat"}, data={"dataset": "scans", "classes": 1000, "inputShape": [4]}),
        policy(maxBytesPerRound="4k"),
    ),
    "bytes in all that are known before the model": (
        job(method={"name": "fedconcat"}, data={"dataset": "scans", "classes": 1000, "inputShape": [4]}),
        policy(maxBytesPerJob="4k"),
    ),
    "silos": (policy(minSilos=3),),
    "before the first day": (policy(notBefore="2026-03-01T13:00:00Z", notAfter=None),),
    "after the last day": (policy(notAfter="2026-03-01T12:59:59+02:00", notBefore=None),),
    "job namespace": (policy(jobNamespaces=["oncology", "cardiology"]),),
    "image by tag": (policy(trainerImages=[f"registry.example/trainer@{DIGEST}"]),),
    "image by another digest": (
        job(agents={"image": f"registry.example/trainer@{OTHER_DIGEST}"}),
        policy(trainerImages=[f"registry.example/trainer@{DIGEST}"]),
    ),
    "no image at all": (policy(trainerImages=[]),),
    "labels that nobody permits": (job(agents=LABELLED_AGENTS),),
    "labels beside those that are permitted": (job(agents=LABELLED_AGENTS), policy(metadataKeys=["study"])),
    "dataset": (job(data={"dataset": "letters", "classes": 10, "inputShape": [4]}),),
    "shape of an example": (dataset(inputShape=[1, 64, 64]),),
    "columns of a table": (
        dataset(loader="csv", config={"path": "a.csv", "target": "y", "columns": ["age", "weight"]}),
    ),
    "fewer classes than the dataset has": (dataset(classes=12),),
    "nobody is named": (
        job(privacy={"differentialPrivacy": {"unit": "person", "epsilon": 1, "delta": 0.001}}),
    ),
    "loader": (dataset(loader="orc"),),
    "loader's settings": (dataset(config={"path": "a.npz", "images": "x"}),),
    "loader's missing setting": (dataset(config={}),),
    "partition": (
        dataset(partition={"scheme": "labels", "silos": 2, "index": 0, "config": {"labelsPerSilo": "two"}}),
    ),
    "a method that does not take its configuration": (
        job(method={"name": "fedconcat", "config": {"cluster": 2}}),
    ),
    "approval": (policy(manualApproval=True),),
    "approval of another specification": (
        policy(manualApproval=True),
        decide_job("Approved", specDigest="f" * 64),
    ),
    "approval of another proposal": (
        policy(manualApproval=True),
        decide_job("Approved", proposal="f" * 64),
    ),
    "approval that names no proposal": (policy(manualApproval=True), decide_job("Approved", proposal=None)),
    "refusal": (policy(manualApproval=True), decide_job("Refused", "No imaging studies before May.")),
    "refusal without a note, where no approval is asked for": (decide_job("Refused"),),
    "specification that was changed": (change_job(specDigest="e" * 64),),
    "key that was replaced": (publish_key(OTHER_KEY),),
    "agent in another namespace": (metadata(namespace="silo-east"),),
    "agent for another silo": (spec(silo={"namespace": "silo-north", "name": "east"}),),
    "agent of another name": (metadata(name="digits-north-2"),),
    "everything at once": (
        job(method=CCVR, agents={"image": "registry.example/trainer:2"}),
        policy(
            methods=["fedavg"],
            jobNamespaces=["oncology"],
            maxRounds=1,
            trainerImages=[],
            manualApproval=True,
        ),
        dataset(name="letters"),
        publish_key(OTHER_KEY),
    ),
}

FINE_EDITS: dict[str, tuple[Edit, ...]] = {
    "nothing asked": (),
    "method named": (policy(methods=["fedavg"]),),
    "rounds at the limit": (policy(maxRounds=20),),
    "silos at the limit": (policy(minSilos=2),),
    "days": (policy(notBefore="2026-03-01T12:00:00Z", notAfter="2026-03-01T12:00:01Z"),),
    "fewer rounds answered than the job has": (policy(maxAnsweredRounds=1),),
    "kinds permitted": (job(method=CCVR), policy(payloadKinds=["model", "class_means", "class_covariances"])),
    "covariances that the configuration leaves out": (
        job(method={"name": "ccvr", "config": {"after": {"name": "fedavg"}, "covariance": "none"}}),
    ),
    "namespace": (policy(jobNamespaces=["federation"]),),
    "image from a mirror": (
        job(agents={"image": f"mirror.example/copy/trainer:2@{DIGEST}"}),
        policy(trainerImages=[f"registry.example/trainer@{DIGEST}"]),
    ),
    "labels that are permitted": (job(agents=LABELLED_AGENTS), policy(metadataKeys=["study", "team"])),
    "approved": (policy(manualApproval=True), decide_job("Approved")),
    "dataset as it is stated": (dataset(classes=10, inputShape=[1, 8, 8]),),
    "more classes than the dataset has": (dataset(classes=9),),
    "method of a third party": (job(method={"name": "mystery"}),),
    "method of a third party, by name": (job(method={"name": "mystery"}), policy(methods=["mystery"])),
}


def parsed_documents(edits: tuple[Edit, ...]) -> tuple[SiloAgent, Silo]:
    one, offer = agent(), copy.deepcopy(silo())
    for edit in edits:
        edit(one, offer)
    return SiloAgent.model_validate(one), Silo.model_validate(offer)


def found_objections(edits: tuple[Edit, ...], *, has_begun: bool = False) -> list[Objection]:
    one, offer = parsed_documents(edits)
    return objections(one, offer, proposal_of(one), START, has_begun)


def text(edits: tuple[Edit, ...]) -> str:
    return "\n".join(
        line
        for objection in found_objections(edits)
        for line in (
            f"{objection.reason}: {objection.message}",
            *(f"in the institution: {fault}" for fault in objection.faults),
        )
    )


@pytest.mark.parametrize("case", CASES)
def test_objections_are_those_of_the_golden_file(case: str) -> None:
    assert text(CASES[case]) == sentences("objections")[case]


def test_the_golden_file_has_just_the_cases() -> None:
    assert list(sentences("objections")) == list(CASES)


@pytest.mark.parametrize("case", FINE_EDITS)
def test_what_the_silo_permits_is_admitted(case: str) -> None:
    assert found_objections(FINE_EDITS[case]) == []


def test_a_dataset_that_no_loader_takes_is_quoted_in_the_institution_alone() -> None:
    """A path that stands in the wrong place in YAML is a value as well, or a field's name."""
    secret = "export-patients"
    for wrong in ({"config": {f"path:{secret}": None}}, {"config": {"path": [secret]}}, {"loader": secret}):
        (objection,) = found_objections((dataset(**wrong),))
        assert secret not in objection.message
        assert any(secret in fault for fault in objection.faults)


def test_each_objection_names_the_silo_and_a_remedy() -> None:
    for edits in CASES.values():
        for objection in found_objections(edits):
            assert objection.message.startswith("Silo north: ")
            assert "; " in objection.message
            assert objection.message.endswith(".")


@given(st.sets(st.sampled_from(sorted(CASES))))
def test_objections_are_the_same_each_time_and_none_hides_another(chosen: set[str]) -> None:
    edits = tuple(edit for case in sorted(chosen) for edit in CASES[case])
    objections_found = found_objections(edits)
    assert objections_found == found_objections(edits)
    assert bool(objections_found) >= bool({"rounds", "method", "job namespace"} & chosen)
    reasons = [objection.reason for objection in objections_found]
    order = ["TrustBroken", "ManifestInvalid", "PolicyRefused", "DatasetMissing", "DataInvalid"]
    ranks = [order.index(reason) if reason in order else len(order) for reason in reasons]
    assert ranks == sorted(ranks)


def test_an_approval_of_an_earlier_version_lets_only_an_agent_go_on_that_has_begun() -> None:
    edits = (policy(manualApproval=True), decide_job("Approved", proposal=None))
    assert found_objections(edits, has_begun=True) == []
    assert [each.reason for each in found_objections(edits)] == ["ApprovalPending"]
    other = (policy(manualApproval=True), decide_job("Approved", proposal="f" * 64))
    assert [each.reason for each in found_objections(other, has_begun=True)] == ["ApprovalPending"]


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name, value in {
            "url": "https://elsewhere.example:8443",
            "address": "10.96.1.3",
            "caCertificate": CERTIFICATE.replace("AAAA", "BBBB"),
            "taskKey": KEY,
        }.items()),
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_an_approval_is_of_one_aggregator(change: dict[str, str]) -> None:
    approve = (policy(manualApproval=True), decide_job("Approved"))
    changed = (*approve, lambda one, _: one["spec"]["trust"].update(change))
    assert [each.reason for each in found_objections(changed)] == ["ApprovalPending"]


@given(st.sampled_from(sorted(Proposal.model_fields)))
def test_every_field_of_a_proposal_is_in_its_digest(name: str) -> None:
    proposal = proposal_of(SiloAgent.model_validate(agent()))
    other = proposal.model_copy(update={name: f"{getattr(proposal, name)}0"})
    assert proposal_digest(other) != proposal_digest(proposal)


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ((), "a class with fewer than 5 samples is left out, as the job asks."),
        (
            (policy(minSamplesPerClass=20),),
            "a class with fewer than 20 samples is left out, as the silo asks.",
        ),
        ((policy(maxBytesPerRound="1Gi"),), "The guard refuses an update of more than 1Gi"),
        (
            (policy(maxBytesPerJob="1Gi"),),
            "It refuses what would make more than 1Gi of all updates together.",
        ),
        ((policy(maxAnsweredRounds=7),), "It answers in 7 rounds at most."),
        ((policy(notAfter="2026-07-01T00:00:00Z"),), "Nothing leaves after 2026-07-01T00:00:00Z."),
        (
            (job(method={"name": "mystery"}),),
            "Method mystery is not known here: the guard decides what it may send.",
        ),
        (
            (job(transforms=[{"name": "mystery"}]),),
            "Transform mystery is not known here: the guard decides what it may send.",
        ),
    ],
)
def test_an_admission_states_what_holds(edits: tuple[Edit, ...], words: str) -> None:
    assert words in admission_note(*parsed_documents(edits))
