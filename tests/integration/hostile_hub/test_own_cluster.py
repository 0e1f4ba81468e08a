"""A hub that belongs to the attacker, and an institution in its own cluster, in memory and in virtual time.

What is decided about a proposal is the same as on a machine (`test_hostile_hub`); here is what only a cluster has:
names and labels of objects, addresses that pods reach, volumes that stay, and what nodes say.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from fedsilo.api.agent import agent_name
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object, uid_of
from fedsilo.hub.client import HubAgent
from fedsilo_operator.cluster.interface import CallRefused
from fedsilo_operator.connector.mirrored import HUB_UID
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    JOB,
    NETWORK_POLICY,
    SILO_AGENT,
    Ref,
    labels_of,
    ref_of,
)
from tests.operator_fakes.virtual import run
from tests.unit.operator.connector.bench import HUB_URL, Institution, virtually
from tests.unit.operator.silo.harness import NAME, SILO_REF, UID, pod_of

INNER_HOST = "10.20.30.40"
SECRET_WORDS = (
    INNER_HOST,
    "pacs.hospital.example",
    "node-radiology-7",
    "/export/patients",
    "secret-token",
)
NODES_WORDS = (
    f'failed to pull image: Get "https://{INNER_HOST}/v2/": x509: certificate is valid for pacs.hospital.example; on '
    "node-radiology-7, /export/patients, Authorization: secret-token"
)


def _job_of(agent: Object, **changes: Any) -> Object:
    return {**agent, "job": {**agent["job"], **changes}}


def _named_agent(spec: Object, uid: str = "hub-1") -> HubAgent:
    """Under the name that follows from the job, so that nothing else is wrong with it."""
    job = spec["job"]
    return HubAgent(agent_name(job["name"], job["uid"], SILO_REF.namespace, SILO_REF.name), uid, spec)


def _trust(**changes: Any) -> Callable[[Object], HubAgent]:
    return lambda spec: _named_agent({**spec, "trust": {**spec["trust"], **changes}})


def _deep(spec: Object) -> HubAgent:
    """A reader of JSON takes more levels than a writer that others have called."""
    deep: Any = []
    for _ in range(150):
        deep = [deep]
    return _named_agent({**spec, "trust": {**spec["trust"], "taskKey": deep}})


UNMADE_AGENTS: dict[str, Callable[[Object], HubAgent]] = {
    "an address inside": _trust(url=f"https://{INNER_HOST}"),
    "an inner host": _trust(url="https://pacs.hospital.example:8443"),
    "the API server": _trust(url="https://kubernetes.default.svc:443", caCertificate=None),
    "another port of the hub": _trust(url="https://hub.example:22"),
    "the hub as a user's name": _trust(url=f"https://hub.example:8443@{INNER_HOST}"),
    "a path below the hub": _trust(url=f"{HUB_URL}/elsewhere"),
    "a port that is none": _trust(url="https://hub.example:84430"),
    "a host that is none": _trust(url="https://[::1"),
    "the hub's name for an address inside": _trust(address=INNER_HOST),
    "no place": _trust(url=None),
    "no trust bundle": lambda spec: _named_agent({**spec, "trust": []}),
    "a uid that is no text": lambda spec: HubAgent(NAME, "hub-1", _job_of(spec, uid=7)),
    "a uid that is no Unicode": lambda spec: HubAgent(NAME, "hub-1", _job_of(spec, uid="\ud800")),
    "a uid that no label holds": lambda spec: _named_agent(_job_of(spec, uid="a b/../c")),
    "a namespace that no label holds": lambda spec: _named_agent(_job_of(spec, namespace="x" * 64)),
    "no job": lambda spec: HubAgent(NAME, "hub-1", {**spec, "job": None}),
    "the name of another job's": lambda spec: HubAgent(NAME, "hub-1", _job_of(spec, uid="another")),
    "a specification without a bottom": _deep,
}


@pytest.mark.parametrize("attempt", UNMADE_AGENTS)
def test_what_a_cluster_must_not_make_is_not_made_and_holds_up_no_other(attempt: str) -> None:
    async def run_institution() -> None:
        here = Institution()
        try:
            await here.join()
            attack = UNMADE_AGENTS[attempt](here.spec(suspend=False))
            here.hub.put(attack)
            other = _named_agent(_job_of(here.spec(), uid="the-honest-job"), "hub-2")
            here.hub.put(other)
            await here.wait_until(lambda: here.hub.statuses.get(other.name, {}).get("decision"))
            await here.wait_until(lambda: here.hub.statuses.get(attack.name, {}).get("phase") == "Pending")
            (stated,) = here.hub.statuses[attack.name]["conditions"]
            assert (stated["status"], stated["reason"]) == ("Unknown", "ManifestInvalid")
            assert [ref_of(made).name for made in here.cluster.objects(SILO_AGENT)] == [other.name]
            assert not [here.cluster.objects(kind) for kind in (JOB, CLAIM) if here.cluster.objects(kind)]
        finally:
            await here.kill()

    run(run_institution())


@virtually
async def test_guards_connect_to_nothing_but_the_hub(here: Institution) -> None:
    await here.join()
    here.propose(suspend=False)
    guard = await _job(here, "guard")
    assert "hostAliases" not in guard["spec"]["template"]["spec"]
    policy = here.cluster.peek(NETWORK_POLICY, Ref(SILO_REF.namespace, f"{NAME}-guard"))
    ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert ports == {8443, 53}
    (trainer,) = (
        found for found in here.cluster.objects(NETWORK_POLICY) if ref_of(found).name == f"{NAME}-trainer"
    )
    assert (trainer["spec"]["egress"], trainer["spec"]["ingress"]) == ([], [])


@virtually
async def test_nothing_of_a_pod_but_the_image_is_of_the_hub_s_choosing(here: Institution) -> None:
    """Two jobs that differ in everything that a hub may choose have the same pods, but for names, labels and image."""
    await here.join()
    plain = _named_agent(here.spec(suspend=False))
    here.hub.put(plain)
    job = {
        **plain.spec["job"]["spec"],
        "agents": {"image": "registry.evil.example/trainer:1"},
        "training": {"rounds": 3},
    }
    digest = spec_digest(FederatedJobSpec.model_validate(job))
    changes = {"uid": "the-odd-job", "spec": job, "specDigest": digest}
    odd = _named_agent(
        _job_of(here.spec(suspend=False, taskKey="ed25519:" + "F" * 43 + "="), **changes), "hub-2"
    )
    here.hub.put(odd)
    for component in ("guard", "trainer"):
        pods = []
        for one in (plain, odd):
            made = await _job(here, component, one.name)
            text = json.dumps(made["spec"]["template"]["spec"], sort_keys=True)
            pods.append(text.replace(one.name, "AGENT"))
        expected = pods[0]
        if component == "trainer":
            expected = expected.replace(
                "registry.example/fedsilo-trainer:0.1.0", "registry.evil.example/trainer:1"
            )
        assert pods[1] == expected


async def _job(here: Institution, component: str, name: str = NAME) -> Object:
    ref = Ref(SILO_REF.namespace, f"{name}-{component}")
    await here.wait_until(lambda: here.cluster.peek(JOB, ref))
    return here.cluster.peek(JOB, ref)


@pytest.mark.parametrize("where", ["image", "node", "volume", "end", "quota", "webhook"])
def test_what_nodes_and_api_server_say_stays_in_the_institution(where: str) -> None:
    """A hub chooses where an image is pulled from, and would read what answers there."""

    async def run_institution() -> None:
        here = Institution()
        try:
            await here.join()
            if where in ("quota", "webhook"):
                kind = "SiloAgent" if where == "webhook" else "Job"
                here.cluster.refuses = lambda obj: CallRefused(NODES_WORDS) if obj["kind"] == kind else None
                here.propose(suspend=False)
                reason = "ApiRefused"
            else:
                here.propose(suspend=False)
                status, reason = _pod_status(where)
                here.cluster.put(pod_of(await _job(here, "trainer"), "trainer-pod", **status))
            await here.wait_until(lambda: reason in _reasons(here))
            reported = json.dumps(here.reported_status())
            assert f"{reason}: the institution's platform team sees why" in here.reported_status()["message"]
            assert not [word for word in SECRET_WORDS if word in reported]
            if where != "webhook":
                told = json.dumps(here.agent()["status"])
                assert INNER_HOST in told, "the institution's own people see it"
            assert (where == "webhook") or here.reported_status()["decision"]["decision"] == "Admitted"
        finally:
            await here.kill()

    run(run_institution())


@virtually
async def test_a_silo_that_cannot_be_read_is_not_quoted_to_the_hub(here: Institution) -> None:
    await here.join()
    silo = here.silo()
    silo["spec"]["datasets"][0]["loader"] = "/export/patients"
    here.cluster.put(silo)
    here.propose()
    await here.wait_until(lambda: "Unreadable" in _reasons(here))
    assert here.reported_status()["message"].startswith(
        "Unreadable: the institution's platform team sees why"
    )
    assert "/export/patients" not in json.dumps(here.reported_status())
    assert "/export/patients" in json.dumps(here.agent()["status"])


def _pod_status(where: str) -> tuple[Object, str]:
    """Status of a trainer's pod, and the reason that follows."""
    if where == "node":
        scheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": NODES_WORDS,
        }
        return {"phase": "Pending", "conditions": [scheduled]}, "Unschedulable"
    if where == "end":
        ended = {"exitCode": 128, "reason": "StartError", "message": NODES_WORDS}
        return {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}, "Restarting"
    why, reason = {
        "image": ("ErrImagePull", "ImageNotFound"),
        "volume": ("CreateContainerConfigError", "VolumeMissing"),
    }[where]
    message = NODES_WORDS if where == "image" else f"failed to mount volume: {NODES_WORDS}"
    waiting = {"waiting": {"reason": why, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"state": waiting}]}, reason


def _reasons(here: Institution) -> set[str]:
    return {str(one["reason"]) for one in here.reported_status().get("conditions", ())}


@virtually
async def test_an_agent_that_is_made_again_and_again_finds_its_volume(here: Institution) -> None:
    """The audit log says which exchanges were answered: no uid, and no deletion, gives the hub another."""
    await here.join()
    here.propose("hub-1", suspend=False)
    await _job(here, "guard")
    (claim,) = here.cluster.objects(CLAIM)
    for number in range(2, 6):
        if number % 2:
            here.hub.remove(NAME)
            await here.wait_until(lambda: not here.is_there())
        here.propose(f"hub-{number}", suspend=False)
        await here.wait_until(
            lambda: here.is_there() and labels_of(here.agent())[HUB_UID] == here.hub.agents[NAME].uid
        )
        guard = await _job(here, "guard")
        volumes = {volume["name"]: volume for volume in guard["spec"]["template"]["spec"]["volumes"]}
        assert volumes["volume"]["persistentVolumeClaim"] == {"claimName": NAME}
    assert [uid_of(found) for found in here.cluster.objects(CLAIM)] == [uid_of(claim)]
    assert not [verb for verb, kind, *_ in here.cluster.writes if (verb, kind) == ("delete", CLAIM)]


@virtually
async def test_suspensions_that_come_and_go_make_no_second_agent(here: Institution) -> None:
    await here.join()
    here.propose(suspend=False)
    guard = await _job(here, "guard")
    before, configured = uid_of(here.agent()), here.cluster.peek(CONFIG_MAP, Ref(SILO_REF.namespace, NAME))
    for number in range(200):
        here.propose(suspend=number % 2 == 0, taskKey="ed25519:" + "E" * 43 + "=")
    await asyncio.sleep(60)
    assert uid_of(here.agent()) == before
    assert uid_of(await _job(here, "guard")) == uid_of(guard)
    assert here.cluster.peek(CONFIG_MAP, Ref(SILO_REF.namespace, NAME))["data"] == configured["data"]


@virtually
async def test_labels_of_an_agent_are_made_here(here: Institution) -> None:
    """By labels, network policies and the institution's own tools tell apart whose pods they are."""
    await here.join()
    here.propose()
    await here.wait_until(here.is_there)
    assert labels_of(here.agent()) == {
        "app.kubernetes.io/managed-by": "fedsilo-operator",
        "app.kubernetes.io/component": "silo-agent",
        "fedsilo.io/job-uid": UID,
        "fedsilo.io/job-name": "digits",
        "fedsilo.io/job-namespace": "federation",
        "fedsilo.io/silo": SILO_REF.name,
        "fedsilo.io/silo-agent": NAME,
        "fedsilo.io/hub-uid": "hub-1",
    }
