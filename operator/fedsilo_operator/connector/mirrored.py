"""SiloAgents of the hub as SiloAgents of the institution's own cluster, which the silo controller there looks after."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fedsilo.api.agent import agent_name
from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.diagnosis import Condition, Diagnosis, as_status
from fedsilo.api.observed import Object
from fedsilo.hub.client import HubAgent
from fedsilo.hub.mirror import MAX_DEPTH, LocalAgent, is_too_deep
from fedsilo.silo.reach import leads_elsewhere
from fedsilo_operator.cluster.interface import Cache
from fedsilo_operator.names import agent_labels
from fedsilo_operator.objects import SILO_AGENT, Ref, is_deleted, labels_of, ref_of, silo_of
from fedsilo_operator.reasons import Reason

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""What values of labels are (Kubernetes, labels and selectors)."""

HUB_UID = "fedsilo.io/hub-uid"
"""Label of a SiloAgent that a connector has made: its uid at the hub."""

MANAGER = "fedsilo-connector"
"""Field manager of these SiloAgents, and of what the connector says in the status of the Silo."""


def of_hub(cache: Cache, silo: Ref) -> dict[str, Object]:
    """The silo's SiloAgents that a connector has made, by name."""
    found = cache.select(SILO_AGENT, namespace=silo.namespace)
    return {
        ref_of(agent).name: agent for agent in found if HUB_UID in labels_of(agent) and silo_of(agent) == silo
    }


def hub_uid(agent: Object) -> str:
    """Its uid at the hub."""
    return labels_of(agent)[HUB_UID]


def local(agent: Object) -> LocalAgent:
    """The SiloAgent as the mirror compares it; one that is on its way out is none of the hub's any more."""
    uid = "" if is_deleted(agent) else hub_uid(agent)
    return LocalAgent(uid, bool(agent["spec"].get("suspend", False)))


def fault_of(agent: HubAgent, hub_url: str) -> str | None:
    """Why no SiloAgent can be made of what the hub says, as a sentence; None where one can."""
    if is_too_deep(agent):
        return f"Its specification has more than {MAX_DEPTH} lists and mappings in one another."
    return _name_fault(agent) or leads_elsewhere(agent.spec.get("trust"), hub_url)


def _name_fault(agent: HubAgent) -> str | None:
    """What is wrong with an agent whose name does not follow from job and silo; None where it does.

    Pods and network policies are told apart by the name that follows: two agents must not share it.
    """
    match agent.spec:
        case {
            "job": {"name": str(job), "namespace": str(home), "uid": str(uid)},
            "silo": {"namespace": str(namespace), "name": str(silo)},
        } if all(_LABEL_VALUE.fullmatch(text) for text in (job, home, uid)):
            wanted = agent_name(job, uid, namespace, silo)
            return (
                None
                if agent.name == wanted
                else f"Its name is {agent.name}, and {wanted} follows from its job."
            )
    return "It names no job and silo as a SiloAgent of this version does."


def new_agent(agent: HubAgent) -> Object:
    """The SiloAgent to make."""
    job, silo = agent.spec["job"], agent.spec["silo"]
    ref = Ref(silo["namespace"], silo["name"])
    labels = agent_labels(Ref(job["namespace"], job["name"]), job["uid"], ref, "silo-agent")
    return _object(agent.name, ref.namespace, labels | {HUB_UID: agent.uid}, agent.spec)


def agent_with_suspend(agent: Object, suspend: bool) -> Object:
    """The SiloAgent as it is, but suspended or not: all fields that the connector owns, as they were first written."""
    ref, spec = ref_of(agent), {**agent["spec"], "suspend": suspend}
    labels = {name: value for name, value in labels_of(agent).items() if name.startswith(_OWN_LABELS)}
    return _object(ref.name, ref.namespace, labels, spec, uid=agent["metadata"]["uid"])


_OWN_LABELS = ("fedsilo.io/", "app.kubernetes.io/")

_OF_THIS_CLUSTER = frozenset(
    {
        Reason.SUSPENDED_BY,
        Reason.UNSCHEDULABLE,
        Reason.IMAGE_NOT_FOUND,
        Reason.VOLUME_MISSING,
        Reason.POD_REFUSED,
        Reason.CONFIG_MISSING,
        Reason.EVICTED,
        Reason.NODE_LOST,
        Reason.RESTARTING,
        Reason.BACKOFF_LIMIT_EXCEEDED,
        Reason.INTERNAL_ERROR,
        Reason.API_REFUSED,
        Reason.UNREADABLE,
    }
)
"""Reasons whose messages quote API server, scheduler or node, or values of the institution's Silo."""


def disclosed_status(ref: Ref, status: Mapping[str, Any]) -> Mapping[str, Any]:
    """A SiloAgent's status for the hub: without the ledger, and what API server, scheduler and nodes say.

    They name nodes, volumes, paths and addresses, and quote whatever has answered at the place of a job's image, which
    the hub may choose. The reason stays.
    """
    status = {name: value for name, value in status.items() if name != "ledger"}
    stated = status.get("conditions") or ()
    quoting = [one for one in stated if one["reason"] in _OF_THIS_CLUSTER]
    if not quoting:
        return status
    conditions = [
        {**one, "message": _withheld_message(ref, one["reason"])} if one in quoting else one for one in stated
    ]
    kept = {one["message"] for one in stated if one not in quoting}
    message = status.get("message")
    if message not in kept:
        message = _withheld_message(ref, quoting[0]["reason"])
    return {**status, "message": message, "conditions": conditions}


def _withheld_message(ref: Ref, reason: str) -> str:
    command = f"kubectl describe siloagent {ref.name} -n {ref.namespace}"
    return f"{reason}: the institution's platform team sees why with `{command}` or in the connector's log."


def unmade_status(diagnosis: Diagnosis, now: datetime) -> dict[str, Any]:
    """The status of an agent that cannot be made, for the hub to know why nothing happens."""
    nothing: Object = {"metadata": {}}
    admitted = Condition.of(ConditionType.ADMITTED, "Unknown", diagnosis)
    return {
        "phase": str(AgentPhase.PENDING),
        "message": diagnosis.message,
        "conditions": as_status([admitted], nothing, now),
    }


def name_taken_diagnosis(name: str) -> Diagnosis:
    """Another object has the name."""
    text = (
        f"The institution's cluster has a SiloAgent {name} that is none of the hub's. Its platform team deletes it, or"
        " the job is created again under another name."
    )
    return Diagnosis(Reason.NAME_TAKEN, text)


def _object(name: str, namespace: str, labels: Mapping[str, str], spec: Any, **identity: str) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels), **identity}
    return {"apiVersion": SILO_AGENT.api, "kind": SILO_AGENT.name, "metadata": metadata, "spec": dict(spec)}
