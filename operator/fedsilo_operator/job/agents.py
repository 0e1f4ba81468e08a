"""The SiloAgents of a job: one in each silo, suspended until all of them may start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsilo.manifests.digest import spec_digest
from fedsilo.manifests.job import FederatedJob
from fedsilo_operator.conditions import moment
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.silos import Member
from fedsilo_operator.keys import JobKeys, job_keys
from fedsilo_operator.names import agent_labels, agent_name
from fedsilo_operator.objects import SERVICE, SILO_AGENT, Object, Ref, is_deleted, ref_of, uid_of
from fedsilo_operator.plan import Action, Apply, Delete
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.aggregator import server_names, url_of

COMPONENT = "silo-agent"


def kept(
    seen: JobObservation, job: FederatedJob, members: Sequence[Member], settings: Settings, *, suspend: bool
) -> Iterator[Action]:
    """What makes the agents those of the members: new ones, resumed or suspended ones, and none besides."""
    address = service_address(seen)
    keys = None
    for member in members:
        if member.agent is not None:
            yield from _suspension(seen, member.agent, suspend)
        elif member.exists and member.public_key is not None and (address or job.spec.aggregator.url):
            keys = keys or keys_of(seen, job, settings)
            yield Apply(_agent(seen, job, member, keys, suspend))
    wanted = {member.ref for member in members}
    for ref, agent in seen.agents.items():
        if ref not in wanted and not is_deleted(agent):
            yield Delete(SILO_AGENT, ref_of(agent), uid_of(agent))


def suspended(seen: JobObservation) -> Iterator[Action]:
    """What takes the pods from every agent."""
    for agent in seen.agents.values():
        yield from _suspension(seen, agent, True)


def keys_of(seen: JobObservation, job: FederatedJob, settings: Settings) -> JobKeys:
    """The job's keys, with a certificate for every name of the aggregator that is known."""
    created = moment(seen.job["metadata"]["creationTimestamp"])
    names = server_names(job, service_address(seen))
    return job_keys(settings.master, uid_of(seen.job), created, names)


def service_address(seen: JobObservation) -> str | None:
    """The cluster IP that the agents were told, or that they will be."""
    for agent in seen.agents.values():
        if address := agent["spec"]["trust"].get("address"):
            return str(address)
    return observed_address(seen)


def observed_address(seen: JobObservation) -> str | None:
    """The cluster IP of the Service as it is."""
    service = seen.children.get(SERVICE)
    return (service["spec"].get("clusterIP") or None) if service else None


def _suspension(seen: JobObservation, agent: Object, suspend: bool) -> Iterator[Action]:
    """All that the operator says in an agent, as it was said first, and whether it is suspended."""
    if is_deleted(agent) or bool(agent["spec"].get("suspend", False)) == suspend:
        return
    frozen = {name: agent["spec"][name] for name in ("job", "silo", "trust")}
    silo = Ref(frozen["silo"]["namespace"], frozen["silo"]["name"])
    yield Apply(_object(seen, silo, frozen | {"suspend": suspend}, uid=uid_of(agent)))


def _agent(seen: JobObservation, job: FederatedJob, member: Member, keys: JobKeys, suspend: bool) -> Object:
    frozen = job.spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"suspend", "ttl_seconds_after_finished"}
    )
    trust = {
        "url": url_of(job),
        "caCertificate": keys.ca_certificate,
        "taskKey": keys.verify_key,
        "publicKey": member.public_key,
    }
    if job.spec.aggregator.url is None:
        trust["address"] = service_address(seen)
    ref = ref_of(seen.job)
    spec = {
        "job": {
            "namespace": ref.namespace,
            "name": ref.name,
            "uid": uid_of(seen.job),
            "specDigest": spec_digest(job),
            "spec": frozen,
        },
        "silo": {"namespace": member.ref.namespace, "name": member.ref.name},
        "trust": trust,
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
