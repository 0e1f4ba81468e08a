"""The digits job on an API server: what operator and aggregator say of it, and how it is changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl, KubectlError
from tests.unit.api.manifests import DIGITS

OPERATOR, AGGREGATOR = "fedsilo-operator", "fedsilo-aggregator"
NOW, LATER_TIME = "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"
NAMESPACE = "federation"
SILOS = ("west", "north", "south")

DOCUMENTS: list[Object] = list(yaml.safe_load_all(DIGITS))
JOB = next(item for item in DOCUMENTS if item["kind"] == "FederatedJob")
SILO = next(item for item in DOCUMENTS if item["kind"] == "Silo")


def job(name: str = "digits", **spec: Any) -> Object:
    """The digits job under a name, with fields of its spec replaced."""
    return JOB | {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": JOB["spec"] | spec}


def conditions(**status: str) -> list[Object]:
    return [
        {"type": name, "status": said, "reason": "Because", "lastTransitionTime": NOW}
        for name, said in status.items()
    ]


def operators(**more: Any) -> Object:
    silos = [{"name": silo, "namespace": f"silo-{silo}", "phase": "Running", "message": ""} for silo in SILOS]
    return {
        "observedGeneration": 1,
        "phase": "Running",
        "conditions": conditions(Accepted="True", Running="True"),
        "startTime": NOW,
        "silos": silos,
    } | more


def aggregators(**more: Any) -> Object:
    silos = [
        {
            "name": silo,
            "state": "Reported",
            "lastRound": 3,
            "samples": 400,
            "bytesSent": 9,
            "update": "d" * 64,
        }
        for silo in SILOS
    ]
    return {
        "round": 3,
        "rounds": 10,
        "progress": "3/10",
        "siloProgress": "1/3",
        "step": "train",
        "roundStartTime": NOW,
        "roundDeadline": LATER_TIME,
        "metrics": {"accuracy": 0.91, "loss": 0.2},
        "training": {"loss": 0.1},
        "curve": [{"round": 3, "metrics": {"accuracy": 0.91}, "training": {"loss": 0.1}}],
        "parameters": 1610,
        "refused": {"round-closed": 1},
        "silos": silos,
    } | more


def operator_of(api: Kubectl) -> Kubectl:
    """The operator's account, unless it is another's already: no person may write a status."""
    return api if api.account else api.as_service_account("fedsilo-system", "fedsilo-operator")


def report(api: Kubectl, name: str, status: Object, manager: str = OPERATOR, *options: str) -> None:
    """Apply a status as one of the two managers does."""
    api = operator_of(api)
    content = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "status": status,
    }
    common = ("--server-side", "--subresource=status", f"--field-manager={manager}", "-f", "-")
    api.run("apply", *common, *options, stdin=yaml.safe_dump(content))


def patch(
    api: Kubectl, kind: str, name: str, content: Object, *options: str, namespace: str = "federation"
) -> str:
    return api.run("patch", kind, name, "-n", namespace, "--type=merge", "-p", json.dumps(content), *options)


def refusal_text(failed: pytest.ExceptionInfo[KubectlError]) -> str:
    """The policy's own words, or the rule's."""
    text = str(failed.value)
    return text.partition("denied request: ")[2] or text.partition("is invalid: ")[2] or text
