"""A Silo says itself what no job could use of it, before any job asks."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.observed import Object, condition
from fedsilo.wire import SigningKey
from fedsilo_operator.plan import Plan
from fedsilo_operator.silo.key_secret import secret
from fedsilo_operator.silo.signing_key import KeyObservation, reconcile
from tests.unit.operator.silo.harness import START, silo

KEY = SigningKey.from_seed(b"k" * 32)

SCANS = {"name": "scans", "loader": "npz", "config": {"path": "scans.npz"}}
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "loader": (
        {"datasets": [SCANS | {"loader": "npzz"}]},
        'spec.datasets[0].loader: "npzz": is not a known loader; use one of ',
    ),
    "setting of the loader": (
        {"datasets": [SCANS | {"config": {"path": "a.npz", "split": 1}}]},
        "spec.datasets[0].config.split: 1: ",
    ),
    "no path": ({"datasets": [SCANS | {"config": {}}]}, "spec.datasets[0].config.path: is missing; add it"),
    "method of the policy": (
        {"datasets": [SCANS], "policy": {"methods": ["fedavgg"]}},
        'spec.policy.methods[0]: "fedavgg": is not installed here; did you mean fedavg?',
    ),
    "limit of zero": (
        {"datasets": [SCANS], "agent": {"resources": {"limits": {"memory": "0"}}}},
        'spec.agent.resources.limits.memory: "0": is too little for a container to start; ',
    ),
    "what another version wrote": (
        {"datasets": [SCANS], "telepathy": 1},
        "spec.telepathy: 1: is not a known field; ",
    ),
}


def plan_of(content: Object) -> Plan:
    return reconcile(KeyObservation(content, secret("silo-north", KEY)), START, lambda: KEY)


def silo_with(spec: dict[str, Any]) -> Object:
    return {**silo(), "spec": spec, "status": {}}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_field_value_and_remedy(name: str) -> None:
    spec, said = FAULTS[name]
    found = plan_of(silo_with(spec))
    valid = condition({"status": found.status}, "Valid") or {}
    assert (valid["status"], valid["reason"]) == ("False", "ManifestInvalid")
    assert said in valid["message"]
    assert [event.type for event in found.events if event.reason == "ManifestInvalid"] == ["Warning"]


def test_a_silo_that_jobs_can_use_says_so_and_is_silent_from_then_on() -> None:
    content = silo_with({"datasets": [SCANS], "policy": {"methods": ["fedavg", "of-another-package"]}})
    first = plan_of(content)
    assert (condition({"status": first.status}, "Valid") or {})["status"] == "True"
    content["status"] = first.status
    assert plan_of(content).settled
