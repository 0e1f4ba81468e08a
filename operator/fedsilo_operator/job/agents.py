"""What has to be done about a job's SiloAgents: one in each silo, suspended until all of them may start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedsilo.api.conditions import ConditionType
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, holds, uid_of
from fedsilo_operator.job.gateway import ROUTE, route_of, via_gateway
from fedsilo_operator.job.participants import Participant
from fedsilo_operator.job.state import JobState
from fedsilo_operator.job.trust import as_stated, bundle
from fedsilo_operator.names import agent_labels, agent_name
from fedsilo_operator.objects import SILO_AGENT, Ref, is_deleted, ref_of, silo_of
from fedsilo_operator.plan import Action, ApplyAction, DeleteAction
from fedsilo_operator.settings import Settings

COMPONENT = "silo-agent"


def agents(state: JobState, job: FederatedJob, settings: Settings) -> Iterator[Action]:
    """Actions that make the agents those of the participants: new ones, resumed or suspended ones, and none besides."""
    reachable = state.trust.address is not None or job.spec.aggregator.url is not None
    known = state.trust.members is not None
    suspend = not state.active
    frozen: _CommonSpec | None = None
    for silo in state.participants:
        if silo.agent is not None and silo.trusted:
            yield from _suspension(state, silo.agent, suspend)
        elif silo.agent is not None:
            yield from _distrusted_agent_actions(state, silo.agent)
        elif silo.exists and silo.public_key is not None and known and reachable and _has_way(silo):
            frozen = frozen or _freeze(state, job, settings)
            yield ApplyAction(_agent(state, frozen, silo, suspend), failure_group=str(silo.ref))
    wanted = {silo.ref for silo in state.participants}
    for ref, agent in state.agents.items():
        if ref not in wanted and not is_deleted(agent):
            yield DeleteAction(SILO_AGENT, ref_of(agent), uid_of(agent), failure_group=str(ref))


def _has_way(silo: Participant) -> bool:
    """Whether it is known how the silo reaches the aggregator."""
    return not silo.remote or silo.gateway is not None


def suspension_actions(state: JobState) -> Iterator[Action]:
    """Actions that remove the pods of every agent that may have some: one that is finished has none."""
    for agent in state.agents.values():
        if not holds(agent, ConditionType.FINISHED):
            yield from _suspension(state, agent, True)


def any_unsuspended(state: JobState) -> bool:
    """Whether an agent may have pods and is not suspended."""
    return any(suspension_actions(state))


def deletion_actions(state: JobState) -> Iterator[Action]:
    """Actions that delete every agent."""
    for agent in state.agents.values():
        if not is_deleted(agent):
            yield DeleteAction(SILO_AGENT, ref_of(agent), uid_of(agent), failure_group=str(ref_of(agent)))


def _distrusted_agent_actions(state: JobState, agent: Object) -> Iterator[Action]:
    """Before the start it is made again; after it, a person decides what becomes of what has run."""
    if state.has_started:
        yield from _suspension(state, agent, True)
    elif not is_deleted(agent):
        yield DeleteAction(SILO_AGENT, ref_of(agent), uid_of(agent), failure_group=str(silo_of(agent)))


def _suspension(state: JobState, agent: Object, suspend: bool) -> Iterator[Action]:
    """All fields that the operator owns in an agent, as they were first written, and whether it is suspended."""
    if is_deleted(agent) or bool(agent["spec"].get("suspend", False)) == suspend:
        return
    frozen = {name: agent["spec"][name] for name in ("job", "silo", "trust", ROUTE) if name in agent["spec"]}
    silo = Ref(frozen["silo"]["namespace"], frozen["silo"]["name"])
    wanted = _object(state, silo, frozen | {"suspend": suspend}, uid=uid_of(agent))
    yield ApplyAction(wanted, failure_group=str(silo))


@dataclass(frozen=True)
class _CommonSpec:
    """What is the same in the agents of all silos, computed once: its cost grows with the number of silos."""

    job: Object
    trust: Mapping[str, str]
    members: Object


def _freeze(state: JobState, job: FederatedJob, settings: Settings) -> _CommonSpec:
    spec = job.spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"suspend", "ttl_seconds_after_finished"}
    )
    ref = ref_of(state.observed)
    identity = {"namespace": ref.namespace, "name": ref.name, "uid": uid_of(state.observed)}
    trust = bundle(state.trust, state.observed, job, settings)
    told = {"members": as_stated(state.trust.members)} if state.trust.members else {}
    return _CommonSpec(identity | {"specDigest": spec_digest(job), "spec": spec}, trust, told)


def _agent(state: JobState, frozen: _CommonSpec, silo: Participant, suspend: bool) -> Object:
    trust = frozen.trust if silo.gateway is None else via_gateway(silo.gateway, frozen.trust)
    spec = {
        "job": frozen.job,
        "silo": {"namespace": silo.ref.namespace, "name": silo.ref.name},
        "trust": {**trust, "publicKey": silo.public_key, **frozen.members},
        **({} if silo.gateway is None else {ROUTE: route_of(frozen.trust)}),
        "suspend": suspend,
    }
    return _object(state, silo.ref, spec)


def _object(state: JobState, silo: Ref, spec: Object, **identity: str) -> Object:
    job, uid = ref_of(state.observed), uid_of(state.observed)
    metadata = {
        "name": agent_name(job, uid, silo),
        "namespace": silo.namespace,
        "labels": agent_labels(job, uid, silo, COMPONENT),
        **identity,
    }
    return {"apiVersion": SILO_AGENT.api, "kind": SILO_AGENT.name, "metadata": metadata, "spec": spec}
