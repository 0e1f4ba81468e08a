"""What the silos are told of the aggregator, and whether their agents still say it.

The ConfigMap of the start is the record. An agent is no source: whoever may make SiloAgents in one silo's namespace
must not decide about the job. Before the start nothing runs yet, and what counts is what the operator would tell now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fedsilo.api.job import FederatedJob
from fedsilo_operator.conditions import moment
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.keys import JobKeys, job_keys, verify_key
from fedsilo_operator.names import MASTER_KEY
from fedsilo_operator.objects import CONFIG_MAP, SERVICE, Object, Ref, ref_of, uid_of
from fedsilo_operator.reasons import Diagnosis, Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads.aggregator import server_names, trust_in, url_of


def bundle(seen: JobObservation, job: FederatedJob, settings: Settings) -> dict[str, str]:
    """What every agent is told: url, address inside the cluster, authority, task key."""
    if (record := _record(seen)) is not None:
        return record
    keys = keys_of(seen, job, settings)
    trust = {"url": url_of(job), "caCertificate": keys.ca_certificate, "taskKey": keys.verify_key}
    if job.spec.aggregator.url is None:
        trust["address"] = str(service_address(seen))
    return trust


def keys_of(seen: JobObservation, job: FederatedJob, settings: Settings) -> JobKeys:
    """The job's keys, with a certificate for every name of the aggregator that is known."""
    created = moment(seen.job["metadata"]["creationTimestamp"])
    names = server_names(job, service_address(seen))
    return job_keys(settings.master, uid_of(seen.job), created, names)


def service_address(seen: JobObservation) -> str | None:
    """The cluster IP that the agents were told, or that they will be.

    Where neither record nor Service is there, most of the agents say it, so that the Service comes back under it.
    """
    if (record := _record(seen)) is not None and "address" in record:
        return record["address"]
    if (observed := observed_address(seen)) is not None:
        return observed
    said = Counter(agent["spec"]["trust"].get("address") for agent in seen.agents.values())
    return said.most_common(1)[0][0] if said else None


def observed_address(seen: JobObservation) -> str | None:
    """The cluster IP of the Service as it is."""
    service = seen.children.get(SERVICE)
    return (service["spec"].get("clusterIP") or None) if service else None


def objections(seen: JobObservation, job: FederatedJob, settings: Settings) -> dict[Ref, str]:
    """By silo, what its agent says that it was not told."""
    expected: Mapping[str, str | None] | None = _record(seen)
    if expected is None:
        address = observed_address(seen) if job.spec.aggregator.url is None else None
        key = verify_key(settings.master, uid_of(seen.job))
        expected = {"url": url_of(job), "taskKey": key, "address": address}
    return {
        ref: _words(agent, field, str(wanted))
        for ref, agent in seen.agents.items()
        for field, wanted in expected.items()
        if wanted is not None and agent["spec"]["trust"].get(field) != wanted
    }


def replaced_master(seen: JobObservation, settings: Settings) -> Diagnosis | None:
    """What is wrong when the operator's master key is not the one from which the silos' trust derives."""
    record = _record(seen)
    present = verify_key(settings.master, uid_of(seen.job))
    if record is None or record["taskKey"] == present:
        return None
    text = (
        f"The silos trust tasks signed with {record['taskKey']}, and the operator's master key gives {present}: it was"
        f" replaced. Restore Secret {settings.namespace}/{MASTER_KEY} and start the operator again, or delete the job"
        " and create it anew. Until then lost keys of this job are not made again."
    )
    return Diagnosis(Reason.TRUST_BROKEN, text)


def _record(seen: JobObservation) -> dict[str, str] | None:
    return trust_in(seen.children[CONFIG_MAP]) if CONFIG_MAP in seen.children else None


def _words(agent: Object, field: str, wanted: str) -> str:
    says = agent["spec"]["trust"].get(field)
    long = field == "caCertificate"
    problem = "another authority than" if long else f"{says}, not {wanted}, which is"
    return (
        f"SiloAgent {ref_of(agent)} has in spec.trust.{field} {problem} what the operator tells the silos: somebody has"
        " changed or made it. Delete it, and the operator makes it again."
    )
