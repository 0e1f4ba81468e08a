"""Jobs in every state, as a cluster would give them, for the dashboard's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fedsilo.dashboard.snapshot import JobsSnapshot, Receipt

NOW = datetime(2026, 11, 21, 12, 5, 30, tzinfo=UTC)

SPEC: dict[str, Any] = {
    "method": {"name": "ccvr", "config": {}},
    "model": {"name": "lenet"},
    "data": {"dataset": "scans", "classes": 10, "inputShape": [1, 32, 32]},
    "training": {"rounds": 20},
    "silos": {
        "refs": [{"namespace": f"silo-{name}", "name": name} for name in ("north", "east", "south", "west")]
    },
    "participation": {"minSilos": 3, "roundDeadline": "10m"},
}


class Calendar:
    """Times before a moment, as an API server writes them."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def ago(self, **length: float) -> str:
        return (self.now - timedelta(**length)).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(
    name: str, uid: str, created: str, status: Mapping[str, Any], spec: Mapping[str, Any] | None = None
) -> Any:
    metadata = {"namespace": "research", "name": name, "uid": uid, "creationTimestamp": created}
    return {"metadata": metadata, "spec": SPEC | dict(spec or {}), "status": dict(status)}


def condition(name: str, status: str, since: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {
        "type": name,
        "status": status,
        "reason": reason or name,
        "message": message,
        "lastTransitionTime": since,
    }


def conditions_until(last: str, since: str) -> list[dict[str, Any]]:
    """The conditions of a job that has come so far."""
    path = ("Accepted", "Admitted", "SilosReady", "Running")
    return [condition(name, "True", since) for name in path[: path.index(last) + 1]]


def curve(rounds: int) -> list[dict[str, Any]]:
    """An accuracy that grows and losses that fall, with a little unrest."""
    return [
        {
            "round": number,
            "metrics": {
                "accuracy": round(0.95 - 0.8 / (1 + 0.35 * number) + 0.02 * (number % 3 - 1), 4),
                "loss": round(0.15 + 2.2 / (1 + 0.4 * number) + 0.03 * (number % 2), 4),
            },
            "training": {"loss": round(0.08 + 2.0 / (1 + 0.6 * number), 4)},
        }
        for number in range(1, rounds + 1)
    ]


def entry(name: str, state: str, last: int = 7, **more: Any) -> dict[str, Any]:
    facts = {"phase": "Running", "state": state, "lastRound": last, "samples": 300 + 17 * len(name)}
    return (
        {"name": name, "namespace": f"silo-{name}", "message": ""}
        | facts
        | {"bytesSent": last * 248_136}
        | more
    )


def running(times: Calendar, name: str = "digits", rounds: int = 7, **status: Any) -> Any:
    """A job whose round waits for two of four silos."""
    silos = [
        entry("north", "Reported", rounds, update="a1" * 32),
        entry("east", "Awaited", rounds, update="b2" * 32),
        entry("south", "Reported", rounds, update="c3" * 32),
        entry("west", "Awaited", rounds - 2, update="d4" * 32),
    ]
    points = curve(rounds)
    content = {
        "phase": "Running",
        "observedGeneration": 1,
        "conditions": conditions_until("Running", times.ago(minutes=24)),
        "startTime": times.ago(minutes=25),
        "round": rounds,
        "rounds": 21,
        "step": "train",
        "roundStartTime": times.ago(minutes=3),
        "roundDeadline": times.ago(minutes=-7),
        "metrics": points[-1]["metrics"],
        "training": points[-1]["training"],
        "curve": points,
        "parameters": 62_006,
        "refused": {"round-closed": 1, "proof-expired": 2},
        "silos": silos,
    }
    return job(name, f"uid-{name}", times.ago(minutes=31), content | status)


def complete(times: Calendar) -> Any:
    silos = [
        entry(name, "Finished", 36, phase="Finished", update=digit * 64)
        for name, digit in (("north", "1"), ("east", "2"), ("south", "3"), ("west", "4"))
    ]
    content = {
        "phase": "Complete",
        "observedGeneration": 1,
        "conditions": [
            condition("Accepted", "True", times.ago(hours=30)),
            condition("Running", "False", times.ago(hours=26), "Finished", "The job is over."),
            condition(
                "Complete",
                "True",
                times.ago(hours=26),
                "",
                "The model is in PersistentVolumeClaim scans-5b0c7a1e.",
            ),
        ],
        "startTime": times.ago(hours=30),
        "completionTime": times.ago(hours=26),
        "round": 36,
        "rounds": 36,
        "metrics": {"accuracy": 0.9666, "loss": 0.0958},
        "curve": curve(36),
        "parameters": 62_006,
        "silos": silos,
        "model": {"claim": "scans-5b0c7a1e", "path": "model.safetensors", "sha256": "3170dba757957b8a" * 4},
    }
    spec = {
        "method": {
            "name": "fedconcat",
            "config": {"clusters": 2, "encoderRounds": 15, "classifierRounds": 20},
        }
    }
    return job("scans-2026", "uid-scans", times.ago(hours=31), content, spec)


def failed_job(times: Calendar) -> Any:
    message = (
        "round 4 (train) cannot reach its quorum of 3 silos any more: 2 of 4 have failed: silo-south/south: "
        "DataInvalid; silo-west/west: TrainerLost: the trainer crashed 6 times, last with exit code 137; see its log."
    )
    silos = [
        entry("north", "Reported", 4, phase="Finished"),
        entry("east", "Reported", 4, phase="Finished"),
        entry(
            "south", "Failed", 3, phase="Failed", message="DataInvalid: a file of the dataset cannot be read."
        ),
        entry(
            "west",
            "Failed",
            3,
            phase="Failed",
            message="The trainer crashed more often than spec.backoffLimit allows.",
        ),
    ]
    content = {
        "phase": "Failed",
        "observedGeneration": 1,
        "conditions": [
            condition("Accepted", "True", times.ago(hours=3)),
            condition("Running", "False", times.ago(hours=2), "Finished", "The job is over."),
            condition("Failed", "True", times.ago(hours=2), "QuorumLost", message),
        ],
        "startTime": times.ago(hours=3),
        "completionTime": times.ago(hours=2),
        "round": 3,
        "rounds": 21,
        "metrics": {"accuracy": 0.5521, "loss": 1.31},
        "training": {"loss": 0.97},
        "curve": curve(3),
        "parameters": 62_006,
        "silos": silos,
    }
    content["classes"] = classes()
    content["best"] = {"round": 2, "metric": "recall", "value": 0.5141}
    data = {"data": SPEC["data"] | {"classes": list(TISSUES)}}
    return job("night-shift", "uid-night", times.ago(hours=4), content, data)


def admitting(times: Calendar) -> Any:
    message = "silo-west/west: policy.methods does not list creff; ask the institution to add it, or use one of fedavg."
    silos = [
        {"name": "north", "namespace": "silo-north", "phase": "Admitted", "message": ""},
        {"name": "west", "namespace": "silo-west", "phase": "Refused", "message": message},
        {
            "name": "east",
            "namespace": "silo-east",
            "phase": "ApprovalPending",
            "message": "A person has to decide.",
        },
    ]
    content = {
        "phase": "Admitting",
        "observedGeneration": 1,
        "conditions": [
            condition("Accepted", "True", times.ago(minutes=12)),
            condition("Admitted", "False", times.ago(minutes=12), "PolicyRefused", message),
        ],
        "silos": silos,
    }
    return job("rare-classes", "uid-rare", times.ago(minutes=12), content, {"method": {"name": "creff"}})


TISSUES = (
    "adipose",
    "debris",
    "lymphocytes",
    "mucus",
    "muscle",
    "normal mucosa of the colon",
    "stroma",
    "tumour",
)


def classes() -> list[dict[str, Any]]:
    """Figures of a model that takes its rarest classes for others; one class has no example."""
    found = []
    for label, examples in enumerate((840, 610, 0, 322, 411, 120, 37, 12)):
        correct = int(examples * (0.97 - 0.13 * label))
        answers = [0] * len(TISSUES)
        answers[label], answers[0 if label else 1] = correct, examples - correct
        recall = {"recall": round(correct / examples, 4)} if examples else {}
        found.append({"figures": recall | {"precision": round(0.95 - 0.03 * label, 4)}, "answers": answers})
    return found


def agent(uid: str, silo: str, *conditions: Mapping[str, Any]) -> Any:
    return {
        "metadata": {"namespace": f"silo-{silo}", "name": f"agent-{silo}", "uid": f"agent-{silo}-{uid}"},
        "spec": {"job": {"uid": uid}, "silo": {"namespace": f"silo-{silo}", "name": silo}},
        "status": {"conditions": list(conditions)},
    }


def event(
    kind: str, namespace: str, name: str, uid: str, reason: str, message: str, last: str, **more: Any
) -> Any:
    about = {"kind": kind, "namespace": namespace, "name": name, "uid": uid}
    facts = {"reason": reason, "message": message, "lastTimestamp": last}
    return {"metadata": {"name": f"{name}.1"}, "involvedObject": about, "type": "Normal"} | facts | more


def consortium(times: Calendar | None = None, digits: Any = None) -> JobsSnapshot:
    """A job in each state, with agents and events."""
    times = times or Calendar()
    warning: dict[str, Any] = {"type": "Warning", "count": 6}
    return JobsSnapshot(
        place="cluster",
        jobs=[digits or running(times), complete(times), failed_job(times), admitting(times)],
        agents=[
            agent("uid-rare", "west", condition("Admitted", "False", times.ago(minutes=11), "PolicyRefused")),
            agent(
                "uid-night", "west", condition("Failed", "True", times.ago(hours=2.1), "BackoffLimitExceeded")
            ),
        ],
        events=[
            event(
                "FederatedJob",
                "research",
                "digits",
                "uid-digits",
                "Running",
                "The aggregator runs.",
                times.ago(minutes=24),
            ),
            event(
                *("SiloAgent", "silo-west", "agent-west", "agent-west-uid-night", "Restarting"),
                *(
                    "The trainer crashed with exit code 137 (out of memory) and is tried again.",
                    times.ago(hours=2.2),
                ),
                **warning,
            ),
            event(
                "FederatedJob",
                "other",
                "elsewhere",
                "uid-of-no-job",
                "Running",
                "Not of these jobs.",
                times.ago(minutes=1),
            ),
        ],
    )


def machine(times: Calendar | None = None, rounds: Sequence[int] = (1, 2)) -> JobsSnapshot:
    """One running job on this machine, whose receipts can be read."""
    found = running(times or Calendar())
    found["metadata"]["namespace"] = "federation"
    receipts = [
        Receipt(number, "train", silo, f"{number}{position}" * 32)
        for number in rounds
        for position, silo in enumerate(("north", "east"))
    ]
    return JobsSnapshot(place="machine", jobs=[found], receipts={"uid-digits": receipts})
