"""The SiloAgents of a job: one in each silo, suspended until all of them may start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJob
from fedsilo_operator.job.member import Member
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.trust import bundle, service_address
from fedsilo_operator.names import agent_labels, agent_name
from fedsilo_operator.objects import SILO_AGENT, Object, Ref, is_deleted, ref_of, silo_of, uid_of
from fedsilo_operator.plan import Action, Apply, Delete
from fedsilo_operator.settings import Settings

COMPONENT = "silo-agent"


def kept(
    seen: JobObservation, job: FederatedJob, members: Sequence[Member], settings: Settings, *, suspend: bool
) -> Iterator[Action]:
    """What makes the agents those of the members: new ones, resumed or suspended ones, and none besides."""
    reachable = service_address(seen) is not None or job.spec.aggregator.url is not None
    frozen: _Frozen | None = None
    for member in members:
        if member.agent is not None and member.trusted:
            yield from _suspension(seen, member.agent, suspend)
        elif member.agent is not None:
            yield from _distrusted(seen, member.agent)
        elif member.exists and member.public_key is not None and reachable:
            frozen = frozen or _freeze(seen, job, settings)
            yield Apply(_agent(seen, frozen, member, suspend), failure_group=str(member.ref))
    wanted = {member.ref for member in members}
    for ref, agent in seen.agents.items():
        if ref not in wanted and not is_deleted(agent):
            yield Delete(SILO_AGENT, ref_of(agent), uid_of(agent), failure_group=str(ref))


def suspended(seen: JobObservation) -> Iterator[Action]:
    """What takes the pods from every agent."""
    for agent in seen.agents.values():
        yield from _suspension(seen, agent, True)


def _distrusted(seen: JobObservation, agent: Object) -> Iterator[Action]:
    """Before the start it is made again; after it, a person decides what becomes of what has run."""
    if seen.has_started:
        yield from _suspension(seen, agent, True)
    elif not is_deleted(agent):
        yield Delete(SILO_AGENT, ref_of(agent), uid_of(agent), failure_group=str(silo_of(agent)))


def _suspension(seen: JobObservation, agent: Object, suspend: bool) -> Iterator[Action]:
    """All that the operator says in an agent, as it was said first, and whether it is suspended."""
    if is_deleted(agent) or bool(agent["spec"].get("suspend", False)) == suspend:
        return
    frozen = {name: agent["spec"][name] for name in ("job", "silo", "trust")}
    silo = Ref(frozen["silo"]["namespace"], frozen["silo"]["name"])
    yield Apply(
        _object(seen, silo, frozen | {"suspend": suspend}, uid=uid_of(agent)), failure_group=str(silo)
    )


@dataclass(frozen=True)
class _Frozen:
    """What the agents of all silos say alike; to compute it takes as long as the job has silos."""

    job: Object
    trust: dict[str, str]


def _freeze(seen: JobObservation, job: FederatedJob, settings: Settings) -> _Frozen:
    spec = job.spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"suspend", "ttl_seconds_after_finished"}
    )
    ref = ref_of(seen.job)
    identity = {"namespace": ref.namespace, "name": ref.name, "uid": uid_of(seen.job)}
    return _Frozen(identity | {"specDigest": spec_digest(job), "spec": spec}, bundle(seen, job, settings))


def _agent(seen: JobObservation, frozen: _Frozen, member: Member, suspend: bool) -> Object:
    spec = {
        "job": frozen.job,
        "silo": {"namespace": member.ref.namespace, "name": member.ref.name},
        "trust": frozen.trust | {"publicKey": member.public_key},
        "suspend": suspend,
    }
    return _object(seen, member.ref, spec)


def _object(seen: JobObservation, silo: Ref, spec: Object, **identity: str) -> Object:
    job, uid = ref_of(seen.job), uid_of(seen.job)
    metadata = {
        "name": agent_name(job, uid, silo),
        "namespace": silo.namespace,
        "labels": agent_labels(job, uid, silo, COMPONENT),
        **identity,
    }
    return {"apiVersion": SILO_AGENT.api, "kind": SILO_AGENT.name, "metadata": metadata, "spec": spec}
