"""Objects as a cluster would give them, for the commands that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from fedsilo.api.agent import Proposal, SiloAgentSpec
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.proposal import propose

NOW = datetime(2026, 11, 21, 14, 5, 30, tzinfo=timezone(timedelta(hours=2)))
UID = "6f1c2c0e-7f7a-4f6e-9a36-0d5a1a2b3c4d"

SPEC: dict[str, Any] = {
    "method": {"name": "fedavg", "config": {}},
    "model": {"name": "lenet"},
    "data": {"dataset": "scans", "classes": 10, "inputShape": [1, 8, 8]},
    "training": {"rounds": 50, "localEpochs": 2},
    "silos": {
        "refs": [{"namespace": f"silo-{name}", "name": name} for name in ("north", "east", "south", "west")]
    },
    "participation": {"minSilos": 3, "roundDeadline": "10m"},
}

TRUST = {
    "url": "https://digits-aggregator.research.svc:8443",
    "address": "10.96.1.2",
    "caCertificate": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "taskKey": "ed25519:" + "B" * 43 + "=",
    "publicKey": "ed25519:" + "A" * 43 + "=",
}
TRAINER_IMAGE, GUARD_IMAGE = "registry.example/fedsilo-trainer:0.1.0", "registry.example/fedsilo-guard:0.1.0"


def ago(**length: float) -> str:
    """A time before `NOW`, as an API server writes it."""
    return (NOW - timedelta(**length)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(name: str, status: str, reason: str, message: str = "", **since: float) -> dict[str, Any]:
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(**since or {"minutes": 3}),
    }


def job(
    *conditions: Mapping[str, Any],
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """The job `research/digits`, made ten minutes ago and seen by the operator."""
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {
            "name": "digits",
            "namespace": "research",
            "uid": UID,
            "generation": 1,
            "creationTimestamp": ago(minutes=10),
            **(metadata or {}),
        },
        "spec": {**SPEC, **(spec or {})},
        "status": {"observedGeneration": 1, "conditions": list(conditions), **status},
    }


def entry(name: str, **facts: Any) -> dict[str, Any]:
    """A silo in a job's status."""
    return {"name": name, "namespace": f"silo-{name}", **facts}


def agent(
    silo_name: str,
    *conditions: Mapping[str, Any],
    spec: Mapping[str, Any] | None = None,
    phase: str | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """The job's SiloAgent in a silo."""
    frozen = deepcopy({**SPEC, **(spec or {})})
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "SiloAgent",
        "metadata": {
            "name": f"digits-{silo_name}-1a2b3c4d",
            "namespace": f"silo-{silo_name}",
            "creationTimestamp": ago(minutes=9),
            **metadata,
        },
        "spec": {
            "job": {
                "namespace": "research",
                "name": "digits",
                "uid": UID,
                "specDigest": spec_digest(FederatedJobSpec.model_validate(frozen)),
                "spec": frozen,
            },
            "silo": {"namespace": f"silo-{silo_name}", "name": silo_name},
            "trust": dict(TRUST),
            "suspend": True,
        },
        "status": {"conditions": list(conditions), **({"phase": phase} if phase else {})},
    }


def remote_agent(silo_name: str, *conditions: Mapping[str, Any], phase: str | None = None) -> dict[str, Any]:
    """The job's SiloAgent of an institution outside of the cluster, which the gateway forwards for."""
    found = agent(silo_name, *conditions, phase=phase)
    found["spec"]["route"] = {"url": TRUST["url"], "caCertificate": TRUST.get("caCertificate")}
    return found


def proposal(observed: Mapping[str, Any]) -> Proposal:
    """What the operator says that a decision on the agent is about."""
    spec = SiloAgentSpec.model_validate(observed["spec"])
    return propose(spec, spec.job.spec.agents.image or TRAINER_IMAGE, GUARD_IMAGE)


def proposed_agent(observed: dict[str, Any]) -> dict[str, Any]:
    """The agent once the operator has written what a decision is about."""
    document = proposal(observed).model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**observed, "status": {**observed["status"], "proposal": document}}


def silo(name: str, policy: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"name": name, "namespace": f"silo-{name}", "resourceVersion": "41"},
        "spec": {
            "datasets": [{"name": "scans", "loader": "npz"}],
            **({} if policy is None else {"policy": policy}),
        },
    }


def pod(
    component: str,
    silo_name: str | None = None,
    *,
    try_: int = 1,
    status: Mapping[str, Any] | None = None,
    namespace: str | None = None,
) -> dict[str, Any]:
    """A pod of the job; running unless its status says something else."""
    labels = {"app.kubernetes.io/component": component, "fedsilo.io/job-uid": UID}
    if silo_name:
        labels["fedsilo.io/silo"] = silo_name
    running = {"phase": "Running", "containerStatuses": [{"name": component, "state": {"running": {}}}]}
    return {
        "metadata": {
            "name": f"{silo_name or 'digits'}-{component}-{try_}",
            "namespace": namespace or (f"silo-{silo_name}" if silo_name else "research"),
            "labels": labels,
            "creationTimestamp": ago(minutes=10 - try_),
        },
        "status": status or running,
    }


def conditions_until(last: str, **since: float) -> Sequence[dict[str, Any]]:
    """The conditions of a job that has come this far."""
    path = ("Accepted", "Admitted", "SilosReady", "Running")
    return [condition(name, "True", name, "", **since) for name in path[: path.index(last) + 1]]
