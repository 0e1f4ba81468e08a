"""An institution's own page: what runs here, what has left, what waits for approval, and whether the hub is reached.

It is made from the silo's own side: its Silo, its SiloAgents and what its guards have on record. A job is what the hub
says it is, so an agent that cannot be read is shown as such and hides no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedsilo.api.conditions import AgentPhase
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.dashboard.contract import contract
from fedsilo.dashboard.view import MALFORMED_DOCUMENT_ERRORS, TONES, UNREADABLE_STATE, Document
from fedsilo.errors import Problem
from fedsilo.wire import VerifyKey

MAX_AGENTS = 200
"""SiloAgents on the page, those that wait for a person first; it also states how many there are."""

_ORDER = (AgentPhase.APPROVAL_PENDING, AgentPhase.RUNNING, AgentPhase.STARTING, AgentPhase.ADMITTED)
"""Phases whose agents come first, in this order; ended ones come last."""

_ENDED_PHASES = (AgentPhase.FINISHED, AgentPhase.FAILED)


@dataclass(frozen=True)
class InstitutionSnapshot:
    """Everything that the page is computed from.

    :param place: where the silo runs: the institution's own cluster, or a machine without Kubernetes.
    :param silos: Silos of this institution.
    :param agents: their SiloAgents; `gone` is the time at which the hub took one back that stays on record here.
    :param receipts: uid of a SiloAgent -> its receipts as its audit log has them now (`fedsilo.api.receipts`), where
        that can be read, as on a machine; on a cluster the page has what the agent's status says.
    :param directory: of `fedsilo silo serve`.
    """

    place: Literal["cluster", "machine"]
    silos: Sequence[Object] = ()
    agents: Sequence[Object] = ()
    receipts: Mapping[str, Object] = field(default_factory=dict)
    directory: str = ""

    @property
    def namespaces(self) -> Collection[str]:
        """Namespaces of the institution's silos."""
        return {silo["metadata"]["namespace"] for silo in self.silos}

    def filter_namespaces(self, namespaces: Collection[str]) -> InstitutionSnapshot:
        """The silos and agents of these namespaces."""

        def select_objects(objects: Iterable[Object]) -> list[Object]:
            return [obj for obj in objects if obj["metadata"]["namespace"] in namespaces]

        return replace(self, silos=select_objects(self.silos), agents=select_objects(self.agents))


def institution(snapshot: InstitutionSnapshot) -> Document:
    """All that the institution sees of itself."""
    agents = sorted(snapshot.agents, key=_creation_key, reverse=True)
    rows = sorted((_unless_malformed(snapshot, agent) for agent in agents), key=_rank)
    return {
        "place": snapshot.place,
        "directory": snapshot.directory,
        "silos": [_silo(silo) for silo in sorted(snapshot.silos, key=_name)],
        "count": len(rows),
        "agents": rows[:MAX_AGENTS],
        "waiting": [row["name"] for row in rows[:MAX_AGENTS] if row["approve"]],
        "left": {
            "updates": sum((row["receipts"] or {}).get("updates", 0) for row in rows),
            "bytes": sum((row["receipts"] or {}).get("bytes", 0) for row in rows),
        },
    }


def _silo(silo: Object) -> Document:
    spec, status = silo.get("spec") or {}, status_of(silo)
    conditions = status.get("conditions") or ()
    hub = status.get("hub") or {}
    return {
        "namespace": silo["metadata"]["namespace"],
        "name": silo["metadata"]["name"],
        "fingerprint": _fingerprint(status.get("publicKey")),
        "datasets": [dataset["name"] for dataset in spec.get("datasets") or ()],
        "manualApproval": bool((spec.get("policy") or {}).get("manualApproval")),
        "hub": hub.get("url"),
        "budgets": [_budget(budget) for budget in status.get("privacyBudget") or ()],
        "conditions": [
            {
                "type": item["type"],
                "status": item["status"],
                "tone": "good" if item["status"] == "True" else "bad",
                "reason": item["reason"],
                "message": item.get("message") or "",
                "since": item["lastTransitionTime"],
            }
            for item in conditions
        ],
    }


def _budget(budget: Object) -> Document:
    """What may be learned of a dataset, what is spent, and by which jobs."""
    figures = ("dataset", "epsilon", "delta", "spent", "reserved", "left")
    jobs = [{name: job[name] for name in ("job", "spent", "reserved")} for job in budget.get("jobs") or ()]
    return {**{name: budget[name] for name in figures}, "jobs": jobs}


def _fingerprint(key: object) -> str | None:
    try:
        return VerifyKey.from_text(key).fingerprint if isinstance(key, str) else None
    except Problem:
        return None


def _unless_malformed(snapshot: InstitutionSnapshot, agent: Object) -> Document:
    try:
        return _agent(snapshot, agent)
    except MALFORMED_DOCUMENT_ERRORS:
        return {
            **_place(agent),
            "job": None,
            "state": UNREADABLE_STATE,
            "tone": "bad",
            "method": None,
            "rounds": None,
            "created": None,
            "since": None,
            "gone": None,
            "message": "It is not as this version knows SiloAgents; the silo controller says more in its log.",
            "decision": None,
            "leaves": None,
            "aggregator": None,
            "images": None,
            "members": None,
            "approve": None,
            "refuse": None,
            "receipts": None,
        }


def _agent(snapshot: InstitutionSnapshot, agent: Object) -> Document:
    status, job = status_of(agent), agent["spec"]["job"]
    phase, gone = str(status.get("phase") or AgentPhase.PENDING), agent.get("gone")
    waits = phase == AgentPhase.APPROVAL_PENDING and gone is None
    proposal = status.get("proposal") or {}
    images = {name: proposal.get(f"{name}Image") for name in ("trainer", "guard")}
    times = [item["lastTransitionTime"] for item in status.get("conditions") or ()]
    return {
        **_place(agent),
        "job": f"{job['namespace']}/{job['name']}",
        "state": phase,
        "tone": TONES.get(phase, "none"),
        "method": job["spec"]["method"]["name"],
        "rounds": job["spec"]["training"]["rounds"],
        "created": agent["metadata"].get("creationTimestamp"),
        "since": max(times, default=None),
        "gone": gone,
        "message": str(status.get("message") or ""),
        "decision": _decision(status.get("decision")),
        "leaves": contract(job["spec"], None) if waits else None,
        "aggregator": agent["spec"]["trust"]["url"],
        "images": images if all(images.values()) else None,
        "members": _members(agent["spec"]["trust"], proposal),
        "approve": _command(snapshot, agent, "approve") if waits else None,
        "refuse": _command(snapshot, agent, "refuse") if waits else None,
        "receipts": _receipts(snapshot, agent),
    }


def _members(trust: Object, proposal: Object) -> Document | None:
    """How many silos know each other's keys in the job, and the digest of these, which institutions compare."""
    digest = proposal.get("members")
    return None if digest is None else {"silos": len(trust["members"]), "digest": digest}


def _place(agent: Object) -> Document:
    metadata = agent["metadata"]
    return {"namespace": metadata["namespace"], "name": metadata["name"]}


def _command(snapshot: InstitutionSnapshot, agent: Object, verb: str) -> str:
    metadata = agent["metadata"]
    if snapshot.place == "cluster":
        return f"kubectl fedsilo {verb} {metadata['name']} -n {metadata['namespace']}"
    return f"fedsilo silo {verb} {metadata['name']} --dir {snapshot.directory}"


def _decision(decision: Mapping[str, Any] | None) -> Document | None:
    if decision is None:
        return None
    return {
        "decision": decision["decision"],
        "time": decision["time"],
        "by": decision.get("decidedBy"),
        "objections": [one["message"] for one in decision.get("objections") or ()],
    }


def _receipts(snapshot: InstitutionSnapshot, agent: Object) -> Document | None:
    """What has left, the latest first; where the audit log cannot be read from here, as its guard said last."""
    live = snapshot.receipts.get(uid_of(agent))
    # On a machine the log itself can be read: one that is not there any more counts with the part that it went to.
    found = live if live is not None or snapshot.place == "machine" else status_of(agent).get("receipts")
    if found is None:
        return None
    latest = [
        {
            "round": one["round"],
            "phase": one["phase"],
            "kinds": [
                {"kind": kind["kind"], "blocks": kind["blocks"], "bytes": kind["bytes"]}
                for kind in one["kinds"]
            ],
            "bytes": one["bytes"],
            "digest": one["digest"],
            "outcome": one["outcome"],
        }
        for one in reversed(found["latest"])
    ]
    return {
        "live": live is not None,
        "updates": int(found["updates"]),
        "bytes": int(found["bytes"]),
        "auditLines": found["auditLines"],
        "auditHash": found["auditHash"],
        "latest": latest,
    }


def _rank(row: Document) -> int:
    state, over = row["state"], row["state"] in _ENDED_PHASES or row["gone"] is not None
    return _ORDER.index(state) if state in _ORDER and not over else len(_ORDER) + over


def _name(silo: Object) -> tuple[str, str]:
    return silo["metadata"]["namespace"], silo["metadata"]["name"]


def _creation_key(agent: Object) -> tuple[str, str]:
    return str(agent["metadata"].get("creationTimestamp") or ""), agent["metadata"]["name"]
