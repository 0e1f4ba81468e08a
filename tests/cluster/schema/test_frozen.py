"""What does not change once it is said: specs, the end of a job, a published key."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.schema.federation import (
    LATER_TIME,
    NOW,
    OPERATOR,
    SILO,
    SILOS,
    conditions,
    job,
    operator_of,
    operators,
    patch,
    refusal_text,
    report,
)
from tests.cluster.schema.objects import AGENT, KEY
from tests.paths import ROOT

FROZEN_FIELDS = {
    "field": ({"backoffLimit": 1}, "spec.backoffLimit"),
    "setting of the method": ({"method": {"config": {"mu": 1}}}, "spec.method"),
    "number of a setting": ({"model": {"config": {"padding": 3}}}, "spec.model"),
    "setting that goes": ({"model": {"config": None}}, "spec.model"),
    "section that comes": ({"agents": {"image": "localhost/trainer:2"}}, "spec.agents"),
    "order of the silos": (
        {"silos": {"refs": [{"name": silo, "namespace": f"silo-{silo}"} for silo in sorted(SILOS)]}},
        "spec.silos",
    ),
    "two at once": ({"suspend": True, "backoffLimit": 1, "privacy": {"minSamplesPerClass": 1}}, None),
}


@pytest.mark.parametrize("case", FROZEN_FIELDS)
def test_a_job_is_frozen(api: Kubectl, name: str, case: str) -> None:
    spec, field = FROZEN_FIELDS[case]
    with pytest.raises(KubectlError) as failed:
        patch(api, "fj", name, {"spec": spec})
    text = refusal_text(failed)
    said = "does not change once the job exists; make a new job, or change only suspend and ttlSecondsAfterFinished"
    if field is None:
        assert all(name in text for name in ("spec.backoffLimit", "spec.privacy"))
        assert said in text
    else:
        # A typed field by the definition's own rule, a setting by the policy.
        assert text.startswith(f"{field}: ")
        assert text.endswith(said)


def test_typed_fields_are_frozen_without_the_policies(api: Kubectl, name: str) -> None:
    api.run("delete", "validatingadmissionpolicybinding", "fedsilo-frozen-jobs")
    try:
        for spec in ({"backoffLimit": 1}, {"training": {"batchSize": 17}}, {"agents": {"image": "i:2"}}):
            with pytest.raises(KubectlError, match="does not change once the job exists"):
                patch(api, "fj", name, {"spec": spec})
    finally:
        api.run("apply", "--server-side", "-f", str(ROOT / "manifests/admission/frozen-jobs.yaml"))


def test_a_job_is_suspended_and_given_a_time_to_live(api: Kubectl, name: str) -> None:
    patch(api, "fj", name, {"spec": {"suspend": True, "ttlSecondsAfterFinished": None}})
    patch(api, "fj", name, {"spec": {"suspend": False, "ttlSecondsAfterFinished": 60}})
    patch(api, "fj", name, {"metadata": {"labels": {"owner": "me"}}})


def test_a_number_written_otherwise_is_no_change(api: Kubectl, name: str) -> None:
    participation = {"fraction": 1, "minSilos": 2, "roundDeadline": "1h30m"}
    api.apply(job(name, participation=participation))


def test_an_agent_is_frozen_but_for_its_suspension(api: Kubectl) -> None:
    api.run("apply", "--server-side", "-f", "-", stdin=AGENT)
    agent, namespace = "digits-north-0123abcd", "silo-north"
    patch(api, "fsa", agent, {"spec": {"suspend": False}}, namespace=namespace)
    changes: dict[str, Object] = {
        "spec.trust": {"trust": {"url": "https://elsewhere.example"}},
        "spec.job": {"job": {"spec": {"method": {"config": {"mu": 1}}}}},
    }
    for field, spec in changes.items():
        with pytest.raises(KubectlError) as failed:
            patch(api, "fsa", agent, {"spec": spec}, namespace=namespace)
        assert refusal_text(failed).startswith(f"{field}: ")
        assert refusal_text(failed).endswith(
            "does not change once the agent exists; delete the SiloAgent, and the operator makes it anew from the job"
        )
    api.run("delete", "fsa", agent, "-n", namespace)


MOVED_ENDS: dict[str, tuple[Object, str]] = {
    "later end": ({"completionTime": LATER_TIME}, "completionTime"),
    "no end": ({"completionTime": None}, "completionTime"),
    "another end": ({"conditions": conditions(Failed="False", Complete="True")}, "conditions"),
    "end forgotten": ({"conditions": conditions(Running="False")}, "conditions"),
}
MESSAGES = {
    "completionTime": "does not change once the job is finished; make a new job",
    "conditions": "say that the job is Complete or Failed, which is final; make a new job",
}


@pytest.mark.parametrize("case", MOVED_ENDS)
def test_the_end_of_a_job_does_not_move(api: Kubectl, name: str, case: str) -> None:
    over = operators(conditions=conditions(Running="False", Failed="True"), completionTime=NOW)
    report(api, name, over)
    report(api, name, over | {"phase": "Failed"})
    change, field = MOVED_ENDS[case]
    with pytest.raises(KubectlError) as failed:
        report(api, name, over | change)
    assert refusal_text(failed) == f"status.{field}: Invalid value: {MESSAGES[field]}"


def publish(api: Kubectl, **fields: Any) -> None:
    status = {"conditions": conditions(Ready="True")} | fields
    content = {name: SILO[name] for name in ("apiVersion", "kind", "metadata")} | {"status": status}
    options = ("--server-side", "--subresource=status", f"--field-manager={OPERATOR}", "-f", "-")
    operator_of(api).run("apply", *options, stdin=yaml.safe_dump(content))


def test_a_published_key_stays_unless_another_is_announced(api: Kubectl) -> None:
    another = f"ed25519:{'B' * 43}="
    api.apply(SILO)
    publish(api)
    publish(api, publicKey=KEY)
    publish(api, publicKey=KEY)
    for key in ({"publicKey": another}, {}):
        with pytest.raises(KubectlError) as failed:
            publish(api, **key)
        assert refusal_text(failed) == (
            "status.publicKey: Invalid value: does not change without an announcement in status.rotations, because "
            "jobs trust it; kubectl fedsilo rotate-key gives the silo another key"
        )
    announcement = {"keyId": "k", "signature": "s", "succession": {"publicKey": another}}
    publish(api, publicKey=another, rotations=[announcement])
    with pytest.raises(KubectlError):
        publish(api, rotations=[announcement])
    api.run("delete", "silo", "north", "-n", "silo-north")
    api.apply(SILO)
    publish(api, publicKey=another)
    api.run("delete", "silo", "north", "-n", "silo-north")
