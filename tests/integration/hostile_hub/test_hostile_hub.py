"""Attempts of a hub that belongs to the attacker, whole: none makes the institution do what it did not decide.

docs/security.md has the list. What tasks of an aggregator can try, with the job's own task key, is in
tests/integration/service/test_hostile_tasks.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.observed import Object, uid_of
from fedsilo.errors import Problem
from fedsilo.hub.client import HubAgent
from fedsilo.silo.decision import read_decision
from fedsilo.wire import DECISION, SigningKey, open_agents, seal_agents, sign_statement
from fedsilo_operator.gateway.writing import write_status
from fedsilo_operator.objects import SILO_AGENT, SILO_KIND, ref_of
from tests.integration.gateway.running_hub import NORTH, SOUTH, agents_path
from tests.integration.hostile_hub.attacked import (
    SECRET_PATH,
    AttackScene,
    attacked_institution,
    signed_list,
    write_silo,
)

DIGEST = "registry.example/trainer@sha256:" + "ab" * 32
OTHER_DIGEST = "registry.example/trainer@sha256:" + "cd" * 32
ATTACKER = SigningKey.generate()
EVIL_CA = "-----BEGIN CERTIFICATE-----\nRXZpbA==\n-----END CERTIFICATE-----\n"

ASKS = {"manualApproval": True}
STRICT_POLICY: Object = {
    "methods": ["fedavg"],
    "payloadKinds": ["model"],
    "maxRounds": 20,
    "trainerImages": [DIGEST],
    "jobNamespaces": ["federation"],
    "minSamplesPerClass": 7,
    "minSilos": 2,
}
AGENTS: Object = {"image": DIGEST}
QUORUM: Object = {"minSilos": 2}
HONEST_SPEC: Object = {"agents": AGENTS, "participation": QUORUM}

AFTER_APPROVAL: dict[str, Object] = {
    "another method": {"method": {"name": "fedprox"}},
    "another payload kind": {"method": {"name": "creff"}},
    "more rounds": {"training": {"rounds": 21}},
    "another image": {"agents": {"image": OTHER_DIGEST}},
    "fewer samples of a class": {"privacy": {"minSamplesPerClass": 1}},
    "a smaller quorum": {"participation": {"minSilos": 1}},
    "another task key": {"trust": {"taskKey": ATTACKER.verify_key.to_text()}},
    "another authority": {"trust": {"caCertificate": EVIL_CA}},
    "the system's authorities": {"trust": {"caCertificate": None}},
    "another job": {"job": {"uid": "b0000000-0000-4000-8000-000000000009"}},
    "another job of a name that people know": {"job": {"name": "approved-before"}},
}


FOREIGN_TRUSTS: dict[str, Object] = {
    "another aggregator": {"url": "https://evil.example"},
    "another address": {"address": "203.0.113.1"},
    "the hub's name for an address inside": {"address": "10.20.30.40"},
    "an address inside": {"url": "https://10.20.30.40"},
    "an inner host": {"url": "https://pacs.hospital.example:8443"},
    "this machine": {"url": "https://127.0.0.1:22"},
    "the hub as a user's name": {"url": "https://hub.example@10.20.30.40"},
    "a path below the hub": {"url": "HUB/elsewhere"},
    "a query of the hub": {"url": "HUB?to=pacs"},
    "no TLS": {"url": "http://127.0.0.1"},
    "no place": {"url": None},
    "a port that is none": {"url": "https://hub.example:84430"},
    "a host that is none": {"url": "https://[::1"},
}
"""Changes of the trust bundle by which the guard would knock at another door than the hub's."""


@pytest.fixture
async def asks(tmp_path: Path) -> AsyncIterator[AttackScene]:
    """An institution where a person decides, and has approved the honest job."""
    async with attacked_institution(tmp_path, ASKS) as scene:
        agent = scene.put(scene.spec(**HONEST_SPEC))
        await scene.listen(agent)
        assert scene.phase() == "ApprovalPending"
        assert scene.executor.begun == 0
        scene.approve()
        assert scene.executor.begun == 1, "what a person approved is started"
        yield scene


@pytest.mark.parametrize("attempt", AFTER_APPROVAL)
async def test_what_differs_from_what_was_approved_is_asked_again(attempt: str, asks: AttackScene) -> None:
    """The agent is deleted and made again, with everything else as consistent as it was."""
    spec = asks.spec(**HONEST_SPEC | AFTER_APPROVAL[attempt])
    await _replace(asks, spec)
    begun = asks.executor.begun
    asks.executor.step()
    assert asks.phase("attack") == "ApprovalPending"
    assert asks.executor.begun == begun, "nothing starts"
    key = asks.running_hub.keys[NORTH].verify_key.to_text()
    assert read_decision(asks.status("attack")["decision"], key).decision == "Refused"


async def test_other_keys_of_silos_than_were_approved_are_asked_again(asks: AttackScene) -> None:
    """In a job in which silos know each other by their keys, the hub tells the keys."""
    names = ("silo-north/north", "silo-south/south", "silo-east/east")
    own = asks.running_hub.keys[NORTH].verify_key.to_text()
    keys = [own, *(SigningKey.generate().verify_key.to_text() for _ in names[1:])]
    refs = [dict(zip(("namespace", "name"), silo.split("/"), strict=True)) for silo in names]
    secure: Object = {
        "agents": AGENTS,
        "silos": {"refs": refs},
        "participation": {"minSilos": 3},
        "aggregation": {"secure": True},
    }

    def spec(keys: list[str]) -> Object:
        members = [{"silo": silo, "publicKey": key} for silo, key in zip(names, keys, strict=True)]
        return asks.spec(trust={"members": members}, **secure)

    await _replace(asks, spec(keys), "secure")
    assert asks.phase("secure") == "ApprovalPending"
    begun = asks.executor.begun
    asks.approve("secure")
    assert asks.executor.begun == begun + 1, "what a person approved is started"
    await _replace(asks, spec([own, ATTACKER.verify_key.to_text(), keys[2]]))
    assert asks.phase("attack") == "ApprovalPending"
    assert asks.executor.begun == begun + 1, "nothing starts"


async def _replace(scene: AttackScene, spec: Object, called: str = "attack") -> None:
    for found in scene.running_hub.cluster.objects(SILO_AGENT):
        scene.withdraw(found)
    await scene.listen(scene.put(spec, called))


@pytest.mark.parametrize("attempt", [*AFTER_APPROVAL, *FOREIGN_TRUSTS])
async def test_an_agent_that_changes_under_its_identity_stays_what_was_decided(
    attempt: str, asks: AttackScene
) -> None:
    before = asks.status()
    changes = AFTER_APPROVAL.get(attempt) or {"trust": _foreign_trust(asks, attempt)}
    spec = asks.spec(**HONEST_SPEC | changes)
    (agent,) = asks.running_hub.cluster.objects(SILO_AGENT)
    asks.hear(
        asks.mirror.hear(
            signed_list(asks.mirror.version + 1, HubAgent(ref_of(agent).name, uid_of(agent), spec))
        )
    )
    record = asks.part().record
    assert record["spec"] == agent["spec"]
    assert asks.status() == before


def _foreign_trust(scene: AttackScene, attempt: str) -> Object:
    return {
        name: value.replace("HUB", scene.hub_url) if value else None
        for name, value in FOREIGN_TRUSTS[attempt].items()
    }


@pytest.mark.parametrize("attempt", FOREIGN_TRUSTS)
async def test_a_guard_that_would_connect_elsewhere_is_not_begun_and_holds_up_no_other(
    attempt: str, strict_institution: AttackScene
) -> None:
    """Also where no person is asked: a guard stands inside the institution."""
    attack = strict_institution.put(
        strict_institution.spec(**HONEST_SPEC, trust=_foreign_trust(strict_institution, attempt)), "attack"
    )
    other = {"uid": "b0000000-0000-4000-8000-000000000009"}
    await strict_institution.listen(
        attack, strict_institution.put(strict_institution.spec(**HONEST_SPEC, job=other))
    )
    assert strict_institution.executor.begun == 1, "the honest one"
    refused = {("Refused", "TrustBroken"), ("Pending", "Unreadable")}
    assert (strict_institution.phase("attack"), strict_institution.reason("attack")) in refused
    assert "spec.trust." in strict_institution.status("attack")["message"]
    assert "configuration" not in strict_institution.status("attack")


async def test_a_person_who_approves_another_door_by_mistake_opens_it_not(asks: AttackScene) -> None:
    await _replace(asks, asks.spec(**HONEST_SPEC, trust=_foreign_trust(asks, "an inner host")))
    asks.approve("attack")
    assert (asks.phase("attack"), asks.reason("attack")) == ("Refused", "TrustBroken")
    assert asks.executor.begun == 1, "what was approved before"


FORBIDDEN_JOBS: dict[str, tuple[Object, str]] = {
    "a method": ({"method": {"name": "fedprox"}}, "PolicyRefused"),
    "a payload kind": ({"method": {"name": "ccvr"}}, "PolicyRefused"),
    "more rounds": ({"training": {"rounds": 21}}, "PolicyRefused"),
    "an image": ({"agents": {"image": OTHER_DIGEST}}, "PolicyRefused"),
    "an image by tag": ({"agents": {"image": "registry.example/trainer:latest"}}, "PolicyRefused"),
    "a namespace": ({"job": {"namespace": "elsewhere"}}, "PolicyRefused"),
    "fewer silos": ({"participation": {"minSilos": 1}}, "PolicyRefused"),
    "a dataset": ({"data": {"dataset": "letters", "classes": 10, "inputShape": [1, 8, 8]}}, "DatasetMissing"),
    "a specification beside its digest": ({"job": {"specDigest": "ab" * 32}}, "TrustBroken"),
    "a key of the attacker's as the silo's": (
        {"trust": {"publicKey": ATTACKER.verify_key.to_text()}},
        "TrustBroken",
    ),
}


@pytest.fixture
async def strict_institution(tmp_path: Path) -> AsyncIterator[AttackScene]:
    """An institution that asks nobody, and has a tight policy."""
    async with attacked_institution(tmp_path, STRICT_POLICY) as scene:
        yield scene


@pytest.mark.parametrize("attempt", FORBIDDEN_JOBS)
async def test_what_the_policy_forbids_is_refused_whatever_the_hub_says(
    attempt: str, strict_institution: AttackScene
) -> None:
    changes, reason = FORBIDDEN_JOBS[attempt]
    _relax_at_the_hub(strict_institution)
    await strict_institution.listen(strict_institution.put(strict_institution.spec(**HONEST_SPEC | changes)))
    assert (strict_institution.phase(), strict_institution.reason()) == ("Refused", reason)
    assert strict_institution.executor.begun == 0
    strict_institution.executor.step()
    assert strict_institution.executor.begun == 0


def _relax_at_the_hub(scene: AttackScene) -> None:
    """The hub's copy of the Silo permits and approves everything."""
    silo = scene.running_hub.cluster.peek(SILO_KIND, NORTH)
    silo["spec"]["policy"] = {"methods": None, "payloadKinds": ["model", "class_means"], "approvals": []}
    silo["status"]["offer"] = sign_statement("fedsilo/offer/v1", {"policy": {}, "silo": str(NORTH)}, ATTACKER)
    scene.running_hub.cluster.put(silo)


async def test_the_honest_job_is_admitted_by_the_strict_policy(strict_institution: AttackScene) -> None:
    await strict_institution.listen(
        strict_institution.put(strict_institution.spec(**HONEST_SPEC) | {"suspend": True})
    )
    assert strict_institution.phase() == "Admitted"
    least = "a class with fewer than 7 samples is left out"
    (admitted,) = (item for item in strict_institution.status()["conditions"] if item["type"] == "Admitted")
    assert least in admitted["message"], "the job's own limit of 5 takes nothing away"


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        ("agents", "image", "installed/fedsilo:9"),
        ("agents", "guardImage", "registry.evil.example/guard:1"),
        ("agents", "serviceAccountName", "cluster-admin"),
        ("agents", "nodeSelector", {"kubernetes.io/hostname": "evil"}),
        ("agents", "volumes", [{"name": "all", "hostPath": {"path": "/"}}]),
        ("agents", "command", ["/bin/sh"]),
        ("data", "loader", "python:os:system"),
    ],
)
async def test_a_container_of_the_hub_s_choosing_is_nothing_that_a_job_can_ask_for(
    strict_institution: AttackScene, place: str, field: str, value: Any
) -> None:
    spec = strict_institution.spec(**HONEST_SPEC)
    spec["job"]["spec"][place][field] = value
    await strict_institution.listen(strict_institution.put(spec))
    assert (strict_institution.phase(), strict_institution.reason()) == ("Pending", "Unreadable")
    assert f"spec.job.spec.{place}.{field}" in strict_institution.status()["message"]
    assert strict_institution.executor.begun == 0


async def test_a_forged_decision_or_approval_at_the_hub_has_no_effect(tmp_path: Path) -> None:
    async with attacked_institution(tmp_path, ASKS) as scene:
        agent = scene.put(scene.spec(**HONEST_SPEC))
        await scene.listen(agent)
        await scene.report()
        stated = scene.status()
        forged = stated["decision"] | {"decision": "Admitted", "objections": []}
        del forged["keyId"], forged["signature"]
        for key in (ATTACKER, scene.running_hub.identity.key):
            found = scene.running_hub.cluster.peek(SILO_AGENT, ref_of(agent))
            told_instead = stated | {"phase": "Running", "decision": sign_statement(DECISION, forged, key)}
            await write_status(scene.running_hub.cluster, SILO_AGENT, found, told_instead, "fedsilo-gateway")
            with pytest.raises(Problem, match="signature"):
                read_decision(told_instead["decision"], scene.running_hub.keys[NORTH].verify_key.to_text())
        silo = scene.running_hub.cluster.peek(SILO_KIND, NORTH)
        silo["spec"]["policy"] = {"manualApproval": False}
        scene.running_hub.cluster.put(silo)
        scene.hear(scene.mirror)
        assert scene.status() == stated
        assert scene.executor.begun == 0
        await scene.report()
        assert scene.running_hub.status(SILO_AGENT, ref_of(agent))["decision"] == stated["decision"]


async def test_what_the_hub_has_signed_once_cannot_be_brought_again(asks: AttackScene) -> None:
    """Whoever stands between repeats the list in which the approved agent still was, after the hub withdrew it."""
    status, _, old = await asks.running_hub.ask("GET", agents_path("x"))
    assert status == 200
    (agent,) = asks.running_hub.cluster.objects(SILO_AGENT)
    asks.withdraw(agent)
    await asks.listen()
    assert asks.part().gone
    document = open_agents(old, asks.running_hub.identity.key.verify_key, str(NORTH))
    repeated = signed_list(document["version"], *(HubAgent(**one) for one in document["agents"]))
    assert asks.mirror.hear(repeated) is asks.mirror
    asks.hear(asks.mirror.hear(repeated))
    assert asks.part().gone


async def test_a_list_that_another_key_signs_or_that_is_for_another_silo_is_none(asks: AttackScene) -> None:
    _, _, sealed = await asks.running_hub.ask("GET", agents_path("x"))
    key = asks.running_hub.identity.key.verify_key
    document = open_agents(sealed, key, str(NORTH))
    with pytest.raises(Problem, match="signature"):
        open_agents(seal_agents(document, ATTACKER), key, str(NORTH))
    with pytest.raises(Problem, match="wrong-sender"):
        open_agents(
            seal_agents(document | {"silo": str(SOUTH)}, asks.running_hub.identity.key), key, str(NORTH)
        )
    changed = bytearray(sealed)
    changed[40] ^= 1
    with pytest.raises(Problem):
        open_agents(bytes(changed), key, str(NORTH))


async def test_an_agent_of_another_silo_or_name_or_with_a_path_for_an_identity_gets_nothing(
    asks: AttackScene,
) -> None:
    (honest,) = asks.running_hub.cluster.objects(SILO_AGENT)
    name, spec = ref_of(honest).name, honest["spec"]
    begun = asks.executor.begun
    foreign = asks.spec(**HONEST_SPEC) | {"silo": {"namespace": SOUTH.namespace, "name": SOUTH.name}}
    asks.hear(
        asks.mirror.hear(
            signed_list(
                asks.mirror.version + 1,
                HubAgent(name, uid_of(honest), spec),
                HubAgent("digits-foreign", "foreign", foreign),
                HubAgent("digits-twin", "twin", spec),
                HubAgent("digits-path", "../../private", spec),
                HubAgent("../private", "path", spec),
            )
        )
    )
    assert set(asks.executor.parts) == {uid_of(honest), "twin"}
    assert (asks.phase("twin"), asks.reason("twin")) == ("Refused", "TrustBroken")
    assert {path.name for path in asks.directory.agents.iterdir()} == {uid_of(honest), "twin"}
    assert not asks.directory.volume("twin").root.exists()
    assert asks.executor.begun >= begun


async def test_a_job_that_is_asked_for_again_goes_on_with_its_audit_log(asks: AttackScene) -> None:
    """What was answered, and how much has left, counts for the job, under whatever identity the hub asks again."""
    log = asks.log()
    log.write_text('{"event": "departure"}\n')
    (agent,) = asks.running_hub.cluster.objects(SILO_AGENT)
    await _replace(asks, agent["spec"], "again")
    moved = asks.log("again")
    assert moved.read_text() == '{"event": "departure"}\n'
    assert not log.exists()
    # And back to the first identity.
    name = ref_of(agent).name
    asks.hear(
        asks.mirror.hear(signed_list(asks.mirror.version + 1, HubAgent(name, uid_of(agent), agent["spec"])))
    )
    assert log.read_text() == '{"event": "departure"}\n'
    assert not moved.exists()


async def test_a_policy_that_is_tightened_ends_what_the_hub_goes_on_asking_for(
    strict_institution: AttackScene,
) -> None:
    await strict_institution.listen(strict_institution.put(strict_institution.spec(**HONEST_SPEC)))
    assert strict_institution.executor.begun == 1
    write_silo(strict_institution.directory, STRICT_POLICY | {"methods": ["fedprox"]})
    strict_institution.executor.step()
    assert (strict_institution.phase(), strict_institution.executor.begun) == ("Refused", 1)


async def test_a_dataset_that_cannot_be_read_is_quoted_in_the_institution_s_log_alone(
    asks: AttackScene, caplog: pytest.LogCaptureFixture
) -> None:
    """A job of the hub's choosing is what shows the fault."""
    write_silo(asks.directory, ASKS, {f"path:{SECRET_PATH}": None})
    asks.executor.step()
    asks.executor.step()
    assert (asks.phase(), asks.reason()) == ("Refused", "DataInvalid")
    await asks.report()
    assert SECRET_PATH not in json.dumps(asks.running_hub.cluster.objects(SILO_AGENT))
    (said,) = (text for text in caplog.messages if SECRET_PATH in text)
    assert said.startswith(f"SiloAgent {asks.part().name}: {asks.directory.silo_file}: config[path:")


async def test_nothing_of_the_institution_is_at_the_hub_but_what_it_publishes(asks: AttackScene) -> None:
    await asks.report()
    (agent,) = asks.running_hub.cluster.objects(SILO_AGENT)
    status = asks.running_hub.status(SILO_AGENT, ref_of(agent))
    assert set(status) <= {"phase", "message", "conditions", "proposal", "decision", "receipts"}
    everything = json.dumps([asks.running_hub.cluster.objects(kind) for kind in (SILO_AGENT, SILO_KIND)])
    pem = asks.directory.key_file.read_text().splitlines()[1]
    published = {"hub", "enrolment", "lastSeen", "offer", "publicKey", "rotations", "leaving", "conditions"}
    assert set(asks.running_hub.status(SILO_KIND, NORTH)) <= published
    for secret in (SECRET_PATH, str(asks.directory.root), pem):
        assert secret not in everything
