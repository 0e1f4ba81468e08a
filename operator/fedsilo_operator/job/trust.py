"""What the silos trust about the aggregator, and whether their agents still have it.

The ConfigMap of the start is the record. An agent is no source: whoever may make SiloAgents in one silo's namespace
must not decide about the job. Before the start nothing runs yet, and what counts is what the operator would write now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from fedsilo.api.agent import Member
from fedsilo.api.diagnosis import Diagnosis
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo.errors import Problem
from fedsilo.silo.rotation import keys_since
from fedsilo_operator.institution import remote_of
from fedsilo_operator.job.gateway import ROUTE, gateway_of
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.silo_keys import SiloKeys, members
from fedsilo_operator.keys import JobKeys, job_keys, verify_key
from fedsilo_operator.messages import join_lines
from fedsilo_operator.names import MASTER_KEY
from fedsilo_operator.objects import CONFIG_MAP, SERVICE, Ref, ref_of
from fedsilo_operator.reasons import Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.aggregator import server_names, trust_in, url_of


@dataclass(frozen=True)
class Trust:
    """What holds between the silos of a job and its aggregator.

    :param record: what the agents were given at the start; None before it, and where the record is lost.
    :param address: cluster IP that the agents were given, or will be.
    :param service_address: cluster IP of the Service as it is.
    :param members: all silos with their keys, as each agent states them; empty where no silo needs the others' keys,
        None until all keys are known.
    :param distrusted: by silo, what its agent has that the operator would not write.
    :param replaced_master: what is wrong when the operator's master key is not the one behind the record.
    """

    record: Mapping[str, str] | None = None
    address: str | None = None
    service_address: str | None = None
    members: tuple[Member, ...] | None = ()
    distrusted: Mapping[Ref, Diagnosis] = field(default_factory=dict)
    replaced_master: Diagnosis | None = None


def read_trust(seen: JobObservation, job: FederatedJob, keys: SiloKeys, settings: Settings) -> Trust:
    """How record, Service and agents agree.

    :param keys: the job's silos and their keys.
    """
    record = trust_in(seen.children[CONFIG_MAP]) if CONFIG_MAP in seen.children else None
    service = seen.children.get(SERVICE)
    service_address = (service["spec"].get("clusterIP") or None) if service else None
    key = verify_key(settings.master, uid_of(seen.job))
    expected: Mapping[str, str | None]
    if record is not None:
        expected = record
    else:
        address = service_address if job.spec.aggregator.url is None else None
        expected = {"url": url_of(job), "taskKey": key, "address": address}
    silos = {ref_of(silo): silo for silo in seen.silos}
    told = members(job, keys)
    stated = None if told is None else as_stated(told)
    digest = None if seen.has_started else spec_digest(job)
    doubts = {
        ref: _outdated_diagnosis(agent, digest)
        or _distrust(agent, silos.get(ref), expected, settled=seen.has_started)
        or _distrust_members(agent, stated, silos, settled=seen.has_started)
        for ref, agent in seen.agents.items()
    }
    return Trust(
        record=record,
        address=_address(record, service_address, seen.agents),
        service_address=service_address,
        members=told,
        distrusted={ref: doubt for ref, doubt in doubts.items() if doubt is not None},
        replaced_master=None if record is None else _replaced_master(record["taskKey"], key, settings),
    )


def bundle(trust: Trust, observed: Object, job: FederatedJob, settings: Settings) -> Mapping[str, str]:
    """The trust bundle of every agent: url, address inside the cluster, authority, task key.

    :param observed: the job as observed.
    """
    if trust.record is not None:
        return trust.record
    keys = keys_of(trust, observed, job, settings)
    content = {"url": url_of(job), "caCertificate": keys.ca_certificate, "taskKey": keys.verify_key}
    if job.spec.aggregator.url is None:
        content["address"] = str(trust.address)
    return content


def keys_of(trust: Trust, observed: Object, job: FederatedJob, settings: Settings) -> JobKeys:
    """The job's keys, with a certificate for every name of the aggregator that is known."""
    created = parse_timestamp(observed["metadata"]["creationTimestamp"])
    names = server_names(job, trust.address)
    return job_keys(settings.master, uid_of(observed), created, names)


def _address(
    record: Mapping[str, str] | None, service_address: str | None, agents: Mapping[Ref, Object]
) -> str | None:
    """From record or Service; where neither exists, what most agents have: the Service is recreated under it."""
    if record is not None and "address" in record:
        return record["address"]
    if service_address is not None:
        return service_address
    addresses = Counter(agent["spec"]["trust"].get("address") for agent in agents.values())
    return addresses.most_common(1)[0][0] if addresses else None


def _replaced_master(recorded: str, present: str, settings: Settings) -> Diagnosis | None:
    """What is wrong when the silos' trust derives from another master key than the operator's."""
    if recorded == present:
        return None
    text = (
        f"The silos trust tasks signed with {recorded}, and the operator's master key gives {present}: it was"
        f" replaced. Restore Secret {settings.namespace}/{MASTER_KEY} and start the operator again, or delete the job"
        " and create it anew. Until then lost keys of this job are not made again."
    )
    return Diagnosis(Reason.TRUST_BROKEN, text)


def _outdated_diagnosis(agent: Object, digest: str | None) -> Diagnosis | None:
    """Why an agent asks its silo about another specification than the job has.

    :param digest: of the job's; None where any will do, since the job has started.
    """
    if digest is None or agent["spec"]["job"].get("specDigest") == digest:
        return None
    text = f"SiloAgent {ref_of(agent)} is made again: the job has another spec since, {digest[:12]}."
    return Diagnosis(Reason.ADMITTING, text)


def _distrust(
    agent: Object, silo: Object | None, expected: Mapping[str, str | None], *, settled: bool
) -> Diagnosis | None:
    """Why an agent is not as the operator would write it.

    :param expected: fields of the trust bundle of a silo that reaches the aggregator itself; None where any will do.
    :param settled: whether the job has started: each silo then keeps the key, and the gateway, that it began with.
    """
    trust = agent["spec"]["trust"]
    places: dict[str, tuple[object, object]]
    if remote_of(silo) is None and (silo is not None or ROUTE not in agent["spec"]):
        places = {f"spec.trust.{name}": (trust.get(name), wanted) for name, wanted in expected.items()}
    else:
        route = agent["spec"].get(ROUTE) or {}
        own = {"taskKey": expected["taskKey"], **({} if settled else gateway_of(silo) or {})}
        places = {f"spec.trust.{name}": (trust.get(name), wanted) for name, wanted in own.items()}
        way = {name: expected.get(name) for name in ("url", "caCertificate")}
        places |= {f"spec.{ROUTE}.{name}": (route.get(name), wanted) for name, wanted in way.items()}
    for place, (found, wanted) in places.items():
        if wanted is not None and found != wanted:
            return Diagnosis(Reason.TRUST_BROKEN, _forgery(agent, place, found, wanted))
    published = status_of(silo or {}).get("publicKey")
    renewed = published not in (None, trust["publicKey"]) and _announced(silo, trust["publicKey"])
    if not settled and renewed:
        text = f"SiloAgent {ref_of(agent)} is made again: the silo has another key since, {published}."
        return Diagnosis(Reason.ADMITTING, text)
    return None


def _distrust_members(
    agent: Object, stated: Sequence[Object] | None, silos: Mapping[Ref, Object], *, settled: bool
) -> Diagnosis | None:
    """Why an agent does not name the silos' keys as the operator would write them.

    :param stated: as it should; None where any will do.
    """
    found = agent["spec"]["trust"].get("members")
    if stated is None or found == (stated or None):
        return None
    existing = {str(ref): silo for ref, silo in silos.items()}
    nothing: Object = {}
    pairs = [pair for pair in zip_longest(found or (), stated, fillvalue=nothing) if pair[0] != pair[1]]
    renewed = [
        now["silo"]
        for before, now in pairs
        if before.get("silo") == now.get("silo")
        and _announces(existing.get(now["silo"]), before["publicKey"])
    ]
    if not settled and len(renewed) == len(pairs) > 0:
        text = f"SiloAgent {ref_of(agent)} is made again for the new key of {join_lines(renewed, ', ')}."
        return Diagnosis(Reason.ADMITTING, text)
    before, now = map(_member, pairs[0]) if pairs else ("an empty list", "none")
    return Diagnosis(Reason.TRUST_BROKEN, _forgery(agent, "spec.trust.members", before, now))


def as_stated(told: Sequence[Member]) -> list[Object]:
    """All silos with their keys, as an agent has them."""
    return [member.model_dump(mode="json", by_alias=True) for member in told]


def _member(member: Object) -> str:
    return f"{member.get('silo')} with {member.get('publicKey')}" if member else "no further silo"


def _announced(silo: Object | None, key: str) -> bool:
    """Whether the present key of a silo is its own: one outside of the cluster has no other in its status."""
    return silo is None or remote_of(silo) is not None or _announces(silo, key)


def _announces(silo: Object | None, key: str) -> bool:
    """Whether a silo has announced its present key as the successor of this one."""
    if silo is None:
        return False
    try:
        keys = keys_since(str(ref_of(silo)), key, status_of(silo).get("rotations") or ())
    except Problem:
        return False
    return status_of(silo).get("publicKey") in keys[1:]


def _forgery(agent: Object, place: str, found: object, wanted: object) -> str:
    problem = (
        "another authority than" if place.endswith("caCertificate") else f"{found}, not {wanted}, which is"
    )
    return (
        f"SiloAgent {ref_of(agent)} has in {place} {problem} what the operator tells the silos: somebody has"
        " changed or made it. Delete it, and the operator makes it again."
    )
