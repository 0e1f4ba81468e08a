"""What `kubectl get` and `kubectl describe` show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl
from tests.cluster.schema.federation import SILO, job, operator_of
from tests.cluster.schema.objects import AGENT, KEY

GOLDEN = Path(__file__).with_name("columns.golden").read_text()

COMMANDS = (
    "get fj",
    "get fj -o wide",
    "get silo",
    "get silo -o wide",
    "get fsa",
    "get fsa -o wide",
    "get fedsilo",
    "describe fj running",
)
"""Commands, in a namespace that holds the objects below."""

NAMESPACE = "silo-centre"
NOW = "2026-01-01T12:00:00Z"


def condition(name: str, status: str, reason: str, message: str = "") -> Object:
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": NOW,
    }


ACCEPTED_CONDITION = condition("Accepted", "True", "Accepted")
ADMITTED_CONDITION = condition("Admitted", "True", "Admitted")
READY_CONDITION = condition("SilosReady", "True", "Running")
RUNNING = condition("Running", "True", "Running")

JOBS: dict[str, Object] = {
    "new": {},
    "waiting": {
        "phase": "Pending",
        "conditions": [condition("Accepted", "False", "SiloNotFound", "Silo silo-west/west does not exist.")],
    },
    "running": {
        "observedGeneration": 1,
        "phase": "Running",
        "conditions": [ACCEPTED_CONDITION, ADMITTED_CONDITION, READY_CONDITION, RUNNING],
        "startTime": NOW,
        "round": 7,
        "rounds": 50,
        "progress": "7/50",
        "siloProgress": "2/3",
        "step": "train",
        "roundStartTime": NOW,
        "roundDeadline": "2026-01-01T12:10:00Z",
        "metrics": {"accuracy": 0.9125, "loss": 0.31},
        "score": "accuracy=0.9125",
        "training": {"loss": 0.25},
        "silos": [
            {
                "name": silo,
                "namespace": f"silo-{silo}",
                "phase": "Running",
                "state": state,
                "lastRound": last,
                "samples": 450,
                "bytesSent": 1740000,
            }
            for silo, state, last in (
                ("west", "Reported", 7),
                ("north", "Reported", 7),
                ("south", "Awaited", 6),
            )
        ],
    },
    "complete": {
        "phase": "Complete",
        "conditions": [
            ACCEPTED_CONDITION,
            ADMITTED_CONDITION,
            condition("Running", "False", "Complete"),
            condition("Complete", "True", "Complete"),
        ],
        "completionTime": NOW,
        "progress": "50/50",
        "metrics": {"accuracy": 0.9611},
        "score": "accuracy=0.9611",
        "model": {"claim": "complete-0123abcd", "path": "model.safetensors", "sha256": "0" * 64},
    },
    "failed": {
        "phase": "Failed",
        "conditions": [
            ACCEPTED_CONDITION,
            ADMITTED_CONDITION,
            condition("Running", "False", "QuorumLost"),
            condition("Failed", "True", "QuorumLost", "2 of 3 silos failed"),
        ],
        "completionTime": NOW,
        "progress": "3/50",
    },
}


def put(api: Kubectl, content: Object, status: Object) -> None:
    """Apply an object and its status."""
    here = content | {"metadata": content["metadata"] | {"namespace": NAMESPACE}}
    api.apply(here)
    identity = {key: here[key] for key in ("apiVersion", "kind", "metadata")}
    text = yaml.safe_dump(identity | {"status": status})
    operator_of(api).run("apply", "--server-side", "--subresource=status", "-f", "-", stdin=text)


@pytest.fixture(scope="module")
def shown_columns(api: Kubectl) -> str:
    offered = [*SILO["spec"]["datasets"], {"name": "scans", "loader": "npz"}]
    for name, status in JOBS.items():
        put(api, job(name), status)
    put(
        api,
        SILO | {"spec": {"datasets": offered}},
        {"publicKey": KEY, "conditions": [condition("Ready", "True", "KeyReady")]},
    )
    put(
        api,
        SILO | {"metadata": {"name": "keyless"}},
        {"conditions": [condition("Ready", "False", "KeyInvalid", "The Secret holds no key.")]},
    )
    put(
        api,
        yaml.safe_load(AGENT),
        {
            "phase": "ApprovalPending",
            "message": "Silo silo-north/north: policy.manualApproval: waits for a decision.",
            "conditions": [condition("Admitted", "False", "ApprovalPending")],
        },
    )
    return "\n".join(f"$ kubectl {command}\n{show(api, command)}" for command in COMMANDS)


def show(api: Kubectl, command: str) -> str:
    """What a command prints, less what differs from run to run."""
    text = api.run(*command.split(), "-n", NAMESPACE)
    text = re.sub(r"\b\d+s( +|$)", lambda age: "1s".ljust(len(age[0])), text, flags=re.MULTILINE)
    text = re.sub(
        r"^(\s+(?:Creation Timestamp|Resource Version|UID):\s+)\S+", r"\1...", text, flags=re.MULTILINE
    )
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_what_a_person_sees(shown_columns: str) -> None:
    assert shown_columns == GOLDEN
