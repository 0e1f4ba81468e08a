"""An institution with agents in every state, for the dashboard's tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsilo.dashboard.institution import InstitutionSnapshot
from fedsilo.wire import SigningKey
from tests.unit.dashboard.snapshots import SPEC, Calendar, condition

PUBLIC_KEY = SigningKey.from_seed(b"k" * 32).verify_key.to_text()
PROPOSAL = {
    "trainerImage": "registry.example/fedsilo-trainer@sha256:" + "7" * 64,
    "guardImage": "registry.example/fedsilo-guard:0.1.0",
}
BUDGET = {
    "dataset": "scans",
    "epsilon": 4.0,
    "delta": 1e-4,
    "spent": 1.918,
    "reserved": 1.082,
    "left": 1.0,
    "lines": 44,
    "jobs": [
        {"uid": "uid-scans-2025", "job": "research/scans-2025", "spent": 1.5, "reserved": 0.0},
        {"uid": "uid-digits", "job": "research/digits", "spent": 0.918, "reserved": 1.082},
    ],
    "later": [],
}


def agent(
    name: str,
    phase: str,
    times: Calendar,
    minutes: int,
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> Any:
    """A SiloAgent that was made so many minutes ago."""
    job = {"namespace": "research", "name": name, "uid": f"uid-{name}", "spec": SPEC | dict(spec or {})}
    return {
        "metadata": {
            "namespace": "silo-north",
            "name": f"{name}-north-1a2b3c4d",
            "uid": f"uid-{name}-north",
            "creationTimestamp": times.ago(minutes=minutes),
        },
        "spec": {
            "job": job,
            "silo": {"namespace": "silo-north", "name": "north"},
            "trust": {"url": "https://hub.example/"},
        },
        "status": {
            "phase": phase,
            "conditions": [condition("Admitted", "True", times.ago(minutes=minutes))],
            "proposal": PROPOSAL,
            **status,
        },
    }


def receipts(rounds: int, outcome: str = "accepted") -> dict[str, Any]:
    """What has left in so many rounds, of which the last three are told."""
    latest = [
        {
            "round": number,
            "phase": "train",
            "kinds": [
                {"kind": "model", "blocks": 10, "bytes": 248_024},
                {"kind": "class_means", "blocks": 9, "bytes": 3_024},
            ],
            "bytes": 252_136,
            "digest": f"{number:02x}" * 32,
            "outcome": outcome if number == rounds else "accepted",
        }
        for number in range(max(1, rounds - 2), rounds + 1)
    ]
    return {
        "auditLines": 2 * rounds + 1,
        "auditHash": "ab" * 32,
        "updates": rounds,
        "bytes": rounds * 252_136,
        "latest": latest,
    }


def silo(times: Calendar, *conditions: Mapping[str, Any]) -> Any:
    ready = condition("Ready", "True", times.ago(hours=50), "KeyReady", "The silo signs.")
    return {
        "metadata": {"namespace": "silo-north", "name": "north"},
        "spec": {
            "datasets": [{"name": "scans", "loader": "npz"}],
            "policy": {"manualApproval": True},
        },
        "status": {
            "publicKey": PUBLIC_KEY,
            "hub": {"url": "https://hub.example"},
            "privacyBudget": [BUDGET],
            "conditions": [ready, *conditions],
        },
    }


def hospital(times: Calendar | None = None, **changes: Any) -> InstitutionSnapshot:
    """A job waits for a person, one runs, one was refused, one is over, and the hub is not reached."""
    times = times or Calendar()
    decided = {"decision": "Admitted", "time": times.ago(minutes=30), "decidedBy": "anna@north.example"}
    refused = {
        "decision": "Refused",
        "time": times.ago(minutes=40),
        "objections": [{"reason": "PolicyRefused", "message": "policy.methods: creff is not permitted."}],
    }
    lost = condition(
        "HubReached",
        "False",
        times.ago(minutes=4),
        "Refused",
        "hub.example:443 refuses the connection; ask the consortium's office whether the hub runs.",
    )
    agents = [
        agent("scans-2025", "Finished", times, 6000, receipts=receipts(36), decision=decided),
        agent(
            "digits", "Running", times, 31, decision=decided, receipts=receipts(7, "sent, not acknowledged")
        ),
        agent(
            "rare", "Refused", times, 45, decision=refused, message="policy.methods: creff is not permitted."
        ),
        agent("atlas", "ApprovalPending", times, 12, message="policy.manualApproval: waits for a decision."),
    ]
    content: dict[str, Any] = {"place": "cluster", "silos": [silo(times, lost)], "agents": agents}
    return InstitutionSnapshot(**(content | changes))
