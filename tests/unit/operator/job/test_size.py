"""A job with as many silos as its manifest may name: its plan is made quickly, and its status fits into an object."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pytest

from fedsilo.api.digest import spec_digest
from fedsilo.api.observed import Object
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.reconcile import reconcile
from fedsilo_operator.names import aggregator_name
from fedsilo_operator.objects import SERVICE, SILO_AGENT, Ref, silo_of
from fedsilo_operator.plan import ApplyAction, Plan
from fedsilo_operator.workloads.aggregator import service
from tests.unit.operator.job.objects import JOB_REF, NORTH, SETTINGS, START, manifest, published_offer, silo

SILOS = [Ref(f"silo-{number}", f"silo-{number}") for number in range(1000)]


def observation() -> JobObservation:
    job = manifest(SILOS)
    job["metadata"] |= {"uid": "0b1c2d3e-0000", "creationTimestamp": "2026-03-01T12:00:00Z", "generation": 1}
    offers = (silo(ref, key=False) for ref in SILOS)
    silos = tuple(offer | {"status": published_offer(offer, NORTH)} for offer in offers)
    made = service(job, "10.96.0.5")
    made["metadata"]["uid"] = "service"
    assert made["metadata"]["name"] == aggregator_name(JOB_REF)
    return JobObservation(job, silos, children={SERVICE: made})


def made_agents(decided: Plan, conditions: list[dict[str, Any]]) -> dict[Ref, Object]:
    found = [action.object for action in decided.actions if isinstance(action, ApplyAction)]
    status = {"phase": "Failed", "message": "z" * 32768, "conditions": conditions}
    agents = [obj | {"status": status} for obj in found if obj["kind"] == SILO_AGENT.name]
    return {silo_of(agent): agent for agent in agents}


def test_the_digest_of_the_specification_is_computed_once() -> None:
    with patch("fedsilo_operator.job.agents.spec_digest", wraps=spec_digest) as digest:
        decided = reconcile(observation(), START, SETTINGS)
    assert sum(action.kind == SILO_AGENT for action in decided.actions) == 1000
    assert digest.call_count == 1


@pytest.mark.parametrize("started", [False, True])
def test_the_status_of_a_thousand_silos_that_have_much_to_say_fits(started: bool) -> None:
    seen = observation()
    names = ("Admitted", "Ready", "Failed") if started else ("Admitted",)
    conditions = [
        {
            "type": name,
            "status": "True" if name == "Failed" else "False",
            "reason": "PolicyRefused",
            "message": "x" * 32768,
        }
        for name in names
    ]
    known = made_agents(reconcile(seen, START, SETTINGS), conditions)
    job = seen.job | ({"status": {"startTime": "2026-03-01T12:00:00Z"}} if started else {})
    if started:
        entries = [{"name": ref.name, "namespace": ref.namespace, "phase": "Running"} for ref in SILOS]
        job["status"]["silos"] = entries
    decided = reconcile(JobObservation(job, seen.silos, known, seen.children), START, SETTINGS)
    assert decided.status is not None
    assert len(decided.status["silos"]) == 1000
    assert all(len(item["message"]) <= 32768 for item in decided.status["conditions"])
    assert 200_000 < len(json.dumps(decided.status)) < 400_000
    assert any("and 980 more" in item["message"] for item in decided.status["conditions"])
