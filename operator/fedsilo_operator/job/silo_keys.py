"""The silos of a job with their keys, and what the agents of a job with secure aggregation are told of them.

A silo of such a job knows the messages of the others by their keys. All agents state the same ones: before the start
those that the silos have published, once all have, and after it those with which the job began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fedsilo.api.agent import Member
from fedsilo.api.conditions import AgentPhase
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object, status_of
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.objects import CONFIG_MAP, Ref, labels_of, ref_of
from fedsilo_operator.workloads.aggregator import public_keys_in

SiloKeys = Sequence[tuple[Ref, str | None]]
"""Silos in the order of folding, each with its key; None where there is none."""


def public_key(silo: Object | None) -> str | None:
    """The key that the silo has published."""
    return status_of(silo or {}).get("publicKey")


def silo_keys(seen: JobObservation, job: FederatedJob) -> SiloKeys:
    """The silos that the specification means, whether they exist or not; after the start those that it began with."""
    existing = {ref_of(silo): silo for silo in seen.silos}
    if seen.has_started:
        return _keys_of_the_start(seen, job, existing)
    return [(ref, public_key(existing.get(ref))) for ref in _named_silos(seen, job)]


def members(job: FederatedJob, keys: SiloKeys) -> tuple[Member, ...] | None:
    """What every agent states of all silos: nothing where none needs it; None until all keys are known."""
    if not job.spec.aggregation.secure:
        return ()
    known = [Member(silo=str(ref), public_key=key) for ref, key in keys if key is not None]
    return tuple(known) if len(known) == len(keys) else None


def _named_silos(seen: JobObservation, job: FederatedJob) -> list[Ref]:
    if job.spec.silos.selector is None:
        return [Ref(ref.namespace, ref.name) for ref in job.spec.silos.refs]
    wanted = job.spec.silos.selector.match_labels.items()
    return sorted(ref_of(silo) for silo in seen.silos if wanted <= labels_of(silo).items())


def _keys_of_the_start(
    seen: JobObservation, job: FederatedJob, existing: Mapping[Ref, Object]
) -> list[tuple[Ref, str | None]]:
    """The silos of the start, from the aggregator's configuration, or from the status where that is lost."""
    if CONFIG_MAP in seen.children:
        return list(public_keys_in(seen.children[CONFIG_MAP]).items())
    order = {Ref(ref.namespace, ref.name): position for position, ref in enumerate(job.spec.silos.refs)}
    refs = sorted(_started_with(seen.job), key=lambda ref: (order.get(ref, 0), ref))
    agents = seen.agents
    stated = _stated_by_most(agents) if job.spec.aggregation.secure else {}
    return [
        (
            ref,
            stated.get(str(ref))
            or (
                agents[ref]["spec"]["trust"]["publicKey"] if ref in agents else public_key(existing.get(ref))
            ),
        )
        for ref in refs
    ]


def _stated_by_most(agents: Mapping[Ref, Object]) -> dict[str, str]:
    """The silos' keys as most agents have them: one silo's agent does not decide about the others."""
    stated = Counter(
        tuple((member["silo"], member["publicKey"]) for member in agent["spec"]["trust"].get("members") or ())
        for agent in agents.values()
    )
    return dict(stated.most_common(1)[0][0]) if stated else {}


def _started_with(job: Object) -> Iterator[Ref]:
    for entry in job["status"].get("silos") or ():
        if entry.get("phase") != AgentPhase.LEFT_OUT and "namespace" in entry:
            yield Ref(entry["namespace"], entry["name"])
