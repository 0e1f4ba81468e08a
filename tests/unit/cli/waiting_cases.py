"""A job and its agents in every state; what is said of each stands in `golden/why.txt` under the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsilo.api.observed import Object
from tests.unit.cli.objects import agent, ago, condition, conditions_until, entry, job, remote_agent

SILOS = ("north", "east", "south", "west")
ADMITTED_CONDITION = condition("Admitted", "True", "Admitted", minutes=8)
READY_CONDITION = condition("Ready", "True", "Running", minutes=5)

NO_GPU = (
    "no node of silo silo-east/east fits its trainer, which asks for nvidia.com/gpu 1: 0/3 nodes are available: 3 "
    "Insufficient nvidia.com/gpu; free a GPU or change Silo.spec.agent.resources"
)
NO_IMAGE = (
    "image registry.example/trainer:0.9 of the trainer cannot be pulled: not found; correct spec.agents.image or push "
    "the image"
)
NO_CLAIM = (
    'persistentvolumeclaim "scans" not found; make the claim in silo-south, or correct the volume in the '
    "Silo's spec.datasets"
)
POLICY = (
    "Silo north: policy.methods allows fedavg, not creff; use one of these in spec.method.name, or ask the institution "
    "to allow it. Silo north: policy.maxRounds is 20, the job has 50 rounds; make spec.training.rounds 20 or less, or "
    "ask the institution for more."
)


def open_round(states: str, **more: Any) -> dict[str, Any]:
    """Status of a running job in round 8, with a letter for what each silo did: Awaited, Reported, Failed, Idle."""
    words = {"A": "Awaited", "R": "Reported", "F": "Failed", "I": "Idle"}
    return {
        "round": 7,
        "rounds": 50,
        "step": "train",
        "roundStartTime": ago(minutes=3, seconds=19),
        "roundDeadline": ago(minutes=-6, seconds=-41),
        "silos": [
            entry(name, phase="Running", state=words[state])
            for name, state in zip(SILOS, states, strict=True)
        ],
        **more,
    }


def running(states: str, **more: Any) -> dict[str, Any]:
    return job(*conditions_until("Running"), **open_round(states, **more))


def ready_agents(*names: str) -> Sequence[Object]:
    return [agent(name, ADMITTED_CONDITION, READY_CONDITION) for name in names]


def unready_agent(name: str, reason: str, message: str) -> Object:
    return agent(name, ADMITTED_CONDITION, condition("Ready", "False", reason, message, minutes=4))


def not_admitted(**more: Any) -> dict[str, Any]:
    found = condition("Admitted", "False", "PolicyRefused", "silo-north/north: ...", minutes=8)
    return job(*conditions_until("Accepted"), found, **more)


REMOTE_MESSAGE = (
    "Silo east: policy.manualApproval asks a person of the institution to approve job research/digits; use `fedsilo "
    "silo approve --dir DIR digits-east-1a2b3c4d`, or add job 6f1c2c0e to policy.approvals."
)
CHANGE_MESSAGE = (
    "The spec was changed after the start: spec.training.batchSize is 17 and was 16. The job goes on as its silos "
    "admitted it. Change it back, or make a new job with the other values."
)
PENDING_CONDITION = condition("Admitted", "False", "ApprovalPending", "a person must decide", minutes=8)
REFUSING = condition("Admitted", "False", "PolicyRefused", POLICY, minutes=7)
REFUSED_CONDITION = condition(
    "Admitted",
    "False",
    "ApprovalRefused",
    "Silo west: the institution refused the job (not this year); settle it with the institution, which can "
    "change its entry in policy.approvals.",
    hours=1,
)

FAILED_ROUND = "silo-west/west: DataInvalid: scans/0017.png: cannot be read; repair or remove the file"

CASES: Mapping[str, tuple[Object, Sequence[Object]]] = {
    "just made": (job(metadata={"creationTimestamp": ago(seconds=5)}, observedGeneration=None), []),
    "no operator": (job(observedGeneration=None), []),
    "no status at all": ({**job(), "status": None}, []),
    "a fault in the spec": (
        job(
            condition(
                "Accepted",
                "False",
                "ManifestInvalid",
                "spec.method.config.mu: -1: is too small; use 0 or more",
            ),
            condition(
                "Failed", "True", "ManifestInvalid", "spec.method.config.mu: -1: is too small; use 0 or more"
            ),
        ),
        [],
    ),
    "a silo is missing": (
        job(
            condition(
                "Accepted",
                "False",
                "SiloNotFound",
                "spec.silos.refs[1]: silo-east/east: there is no such Silo; apply it, or name another in a new job",
                minutes=9,
            )
        ),
        [],
    ),
    "a silo without a key": (
        job(
            condition(
                "Accepted", "False", "SiloNotReady", "silo silo-east/east has published no key yet", hours=30
            )
        ),
        [],
    ),
    "one silo of one to admit": (
        job(
            *conditions_until("Accepted"),
            spec={"silos": {"refs": [{"namespace": "silo-north", "name": "north"}]}},
        ),
        [agent("north", PENDING_CONDITION)],
    ),
    "objections and approvals": (
        not_admitted(),
        [
            agent("north", REFUSING),
            agent("east", PENDING_CONDITION),
            agent("south", ADMITTED_CONDITION),
            agent("west", REFUSED_CONDITION),
        ],
    ),
    "an institution that decides outside of the cluster": (
        not_admitted(),
        [remote_agent("north", PENDING_CONDITION), agent("east", PENDING_CONDITION)],
    ),
    "two have not decided": (
        not_admitted(),
        [agent("north"), agent("east"), agent("south", ADMITTED_CONDITION), agent("west", PENDING_CONDITION)],
    ),
    "agents closed to the reader": (
        not_admitted(
            silos=[
                entry("north", phase="Refused", message=POLICY),
                entry("east", phase="ApprovalPending", message=REMOTE_MESSAGE),
                entry("south", phase="Admitted"),
                entry("west", phase="Pending"),
            ]
        ),
        [],
    ),
    "a silo that cannot decide": (
        not_admitted(),
        [
            agent(
                "north",
                condition(
                    "Admitted", "False", "SiloNotFound", "Silo silo-north/north does not exist; create it."
                ),
            ),
            agent(
                "east",
                condition("Admitted", "Unknown", "SiloNotReady", "Silo silo-east/east has published no key."),
            ),
        ],
    ),
    "a person and a policy": (
        not_admitted(),
        [agent("north", condition("Admitted", "False", "ApprovalPending", POLICY), phase="Refused")],
    ),
    "no agent made yet": (job(*conditions_until("Accepted")), []),
    "pods do not start": (
        job(
            *conditions_until("Admitted", minutes=8),
            condition("SilosReady", "False", "Unschedulable", minutes=4),
        ),
        [
            *ready_agents("north"),
            unready_agent("east", "Unschedulable", NO_GPU),
            unready_agent("south", "VolumeMissing", NO_CLAIM),
            unready_agent("west", "ImageNotFound", NO_IMAGE),
        ],
    ),
    "pods are starting": (
        job(
            *conditions_until("Admitted", minutes=8), condition("SilosReady", "False", "Starting", seconds=40)
        ),
        [
            *ready_agents("north"),
            unready_agent("east", "Starting", ""),
            agent("south", ADMITTED_CONDITION),
            agent("west", ADMITTED_CONDITION),
        ],
    ),
    "pods of agents closed to the reader": (
        job(
            *conditions_until("Admitted", minutes=8),
            condition("SilosReady", "False", "Unschedulable", minutes=4),
            silos=[entry("north", phase="Running"), entry("east", phase="Starting", message=NO_GPU)],
        ),
        [],
    ),
    "no silo in the status": (
        job(
            *conditions_until("Admitted", minutes=8),
            condition("SilosReady", "False", "Starting", "3 of 4 agents run", minutes=1),
        ),
        [],
    ),
    "the aggregator does not start": (
        job(
            *conditions_until("SilosReady"),
            condition(
                "Running", "False", "VolumeMissing", "claim digits-6f1c2c0e is not bound: no StorageClass"
            ),
        ),
        ready_agents(*SILOS),
    ),
    "no round yet": (job(*conditions_until("Running")), ready_agents(*SILOS)),
    "between two rounds": (job(*conditions_until("Running"), round=7, rounds=50), ready_agents(*SILOS)),
    "a silo that was left out": (
        running(
            "AAAA", silos=[entry("north", phase="LeftOut"), entry("east", state="Awaited", phase="Running")]
        ),
        ready_agents("east"),
    ),
    "one agent has finished, one goes on": (
        job(*conditions_until("Admitted"), condition("SilosReady", "False", "Starting")),
        [
            agent(
                "north",
                ADMITTED_CONDITION,
                condition("Ready", "False", "Finished", "over"),
                condition("Finished", "True", "Finished"),
            ),
            unready_agent("east", "Starting", "Waiting for the trainer to run."),
        ],
    ),
    "suspended before it began": (
        job(condition("Suspended", "True", "Suspended"), spec={"suspend": True}),
        [],
    ),
    "one awaited, enough are here": (
        running("ARRR", roundDeadline=ago(minutes=-1)),
        ready_agents(*SILOS),
    ),
    "two awaited, quorum not reached": (running("AARR"), ready_agents(*SILOS)),
    "all are needed": (
        job(*conditions_until("Running"), spec={"participation": {}}, **open_round("ARRR")),
        ready_agents(*SILOS),
    ),
    "an awaited silo is in trouble": (
        running("ARRI"),
        [
            unready_agent(
                "north",
                "OutOfMemory",
                "the trainer of silo-north/north was killed for memory: 16Gi; raise "
                "Silo.spec.agent.resources.limits.memory",
            ),
            *ready_agents("east", "south", "west"),
        ],
    ),
    "a spec that was changed after the start": (
        running(
            "ARRI",
            conditions=[
                condition("Accepted", "False", "TrustBroken", CHANGE_MESSAGE),
                *conditions_until("Running")[1:],
            ],
            startTime=ago(hours=1),
        ),
        ready_agents(*SILOS),
    ),
    "an awaited silo whose disk is full": (
        running(
            "ARRI",
            silos=[
                entry("north", state="Awaited", phase="Running", hindrance="StorageFull"),
                *open_round("ARRI")["silos"][1:],
            ],
        ),
        ready_agents(*SILOS),
    ),
    "a silo failed in the round": (
        running(
            "ARRF",
            silos=[
                entry("north", state="Awaited", phase="Running"),
                entry("east", state="Reported", phase="Running"),
                entry("south", state="Reported", phase="Running"),
                entry("west", state="Failed", phase="Running", message="its trainer crashed: see the log"),
            ],
        ),
        ready_agents(*SILOS),
    ),
    "all have answered": (running("RRRR"), ready_agents(*SILOS)),
    "the deadline is past": (running("ARRI", roundDeadline=ago(minutes=12)), ready_agents(*SILOS)),
    "a thousand awaited": (
        job(
            *conditions_until("Running"),
            spec={"participation": {"minSilos": 500}},
            **open_round("AAAA", silos=[entry(f"s{number}", state="Awaited") for number in range(1000)]),
        ),
        [],
    ),
    "being suspended": (
        job(
            *conditions_until("Running"),
            spec={"suspend": True},
            metadata={"generation": 2},
            round=7,
            rounds=50,
        ),
        [],
    ),
    "suspended": (
        job(
            condition("Suspended", "True", "Suspended", days=5),
            spec={"suspend": True},
            round=7,
            rounds=50,
        ),
        [],
    ),
    "being resumed": (job(condition("Suspended", "True", "Suspended"), metadata={"generation": 3}), []),
    "failed": (
        job(
            *conditions_until("Running"),
            condition("Failed", "True", "SiloFailed", FAILED_ROUND, hours=20),
            startTime=ago(hours=21),
            round=7,
            rounds=50,
        ),
        [],
    ),
    "failed before a round": (
        job(
            condition(
                "Failed", "True", "BackoffLimitExceeded", "the aggregator ended 6 times with exit code 1"
            ),
            startTime=ago(minutes=6),
        ),
        [],
    ),
    "failed with a method that the operator does not know": (
        job(
            condition(
                "Accepted", "Unknown", "Unverified", "Method fedavgg is not installed in this operator"
            ),
            condition("Failed", "True", "QuorumLost", "0 of 1 silo left, the quorum is 1"),
            startTime=ago(minutes=6),
        ),
        [],
    ),
    "complete": (
        job(
            condition("Complete", "True", "Complete", minutes=2),
            round=50,
            rounds=50,
            metrics={"accuracy": 0.97123, "loss": 0.1},
            model={"claim": "digits-6f1c2c0e", "path": "model.safetensors", "sha256": "ab" * 32},
        ),
        [],
    ),
    "complete without its MLflow run": (
        job(
            condition(
                "OutputsDelivered",
                "False",
                "OutputFailed",
                "mlflow: MlflowException: 503 from the server. Make spec.output.mlflow.trackingUri reachable.",
            ),
            condition("Complete", "True", "Complete", minutes=2),
            round=50,
            rounds=50,
            model={"claim": "digits-6f1c2c0e", "path": "model.safetensors", "sha256": "ab" * 32},
        ),
        [],
    ),
    "complete without a model": (job(condition("Complete", "True", "Complete"), round=50, rounds=50), []),
    "being deleted": (job(metadata={"deletionTimestamp": ago(seconds=45)}), [agent("north"), agent("east")]),
    "deleted, agents gone": (job(metadata={"deletionTimestamp": ago(seconds=45)}), []),
    "a message that steers a terminal": (
        job(
            condition(
                "Accepted", "False", "SiloNotFound", "no silo \x1b[2J\x1b[31mnorth\nfedsilo: all is well"
            )
        ),
        [],
    ),
}
