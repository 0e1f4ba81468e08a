"""What belongs to the aggregator, and what of it is missing or not as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsilo.api.conditions import ConditionType
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import holds
from fedsilo_operator.diagnosis.diagnose import diagnose
from fedsilo_operator.diagnosis.outcome import outcome
from fedsilo_operator.diagnosis.pods import alive, running
from fedsilo_operator.job.conditions import Course
from fedsilo_operator.job.member import Member
from fedsilo_operator.job.observe import JobObservation
from fedsilo_operator.job.trust import bundle, keys_of, observed_address, replaced_master, service_address
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    JOB,
    SERVICE,
    SERVICE_ACCOUNT,
    Object,
    is_deleted,
    kind_of,
    ref_of,
    satisfies,
    uid_of,
)
from fedsilo_operator.plan import Action, Apply, Create, Delete
from fedsilo_operator.reasons import Reason
from fedsilo_operator.settings import Settings
from fedsilo_operator.workloads import aggregator as objects
from fedsilo_operator.workloads.pod import SUSPENDER, is_suspended, suspension


def standing(seen: JobObservation, job: FederatedJob, settings: Settings) -> Iterator[Action]:
    """What is there from the first step to the last, and restored when it is not."""
    told, observed = service_address(seen), observed_address(seen)
    if told != observed and observed is not None:
        # An address does not change in place, and the agents know only the one that they were told.
        service = seen.children[SERVICE]
        yield Delete(SERVICE, ref_of(service), uid_of(service))
    else:
        yield from _put(seen, objects.service(seen.job, told))
    yield from _put(seen, objects.account(seen.job))
    yield from _put(seen, objects.role(seen.job))
    yield from _put(seen, objects.role_binding(seen.job))
    from_anywhere = job.spec.aggregator.url is not None
    yield from _put(seen, objects.network_policy(seen.job, settings, from_anywhere=from_anywhere))


def configuration(
    seen: JobObservation, job: FederatedJob, members: Sequence[Member], settings: Settings
) -> Iterator[Action]:
    """The frozen job and its silos; immutable, so made once, and again only where it is gone."""
    if CONFIG_MAP in seen.children or _in_the_way(seen, CONFIG_MAP.name):
        return
    keys = {member.ref: member.public_key for member in members if member.public_key is not None}
    if len(keys) == len(members):
        yield Apply(objects.config(seen.job, job, keys, bundle(seen, job, settings)))


def workload(seen: JobObservation, job: FederatedJob, course: Course, settings: Settings) -> Iterator[Action]:
    """The aggregator's Job, with the volume and the keys that it needs."""
    batch = seen.children.get(JOB)
    if batch is not None:
        yield from _keep(seen, job, course, settings, batch)
        return
    due = not course.suspended and (_agents_run(course) or holds(seen.job, ConditionType.RUNNING))
    if due and not seen.previous_pod and not seen.claim_conflict and not _in_the_way(seen, JOB.name):
        yield from _volume(seen, job)
        yield from _secret(seen, job, settings)
        yield Apply(objects.workload(seen.job, job, settings))


def suspended(seen: JobObservation) -> Iterator[Action]:
    """What takes the aggregator's pod from it, unless it has ended."""
    batch = seen.children.get(JOB)
    if batch is not None and outcome(batch, seen.pods) is None:
        yield from _suspend(batch, True)


def _keep(
    seen: JobObservation, job: FederatedJob, course: Course, settings: Settings, batch: Object
) -> Iterator[Action]:
    """It waits for the agents when it is resumed, as it did at first; once it runs it goes on without."""
    waits = is_suspended(batch) and not _agents_run(course)
    if not course.suspended and not running(seen.pods):
        yield from _volume(seen, job)
        found = diagnose(batch, seen.pods, seen.events)
        if found is not None and found.reason == Reason.CONFIG_MISSING:
            yield from _secret(seen, job, settings)
    yield from _suspend(batch, course.suspended or waits or _is_locked_out(seen))


def _is_locked_out(seen: JobObservation) -> bool:
    """Whether the pod is older than its account: its token died with the account that was there before.

    The kubelet would get it another one within the hour; until then no progress is reported, and no end. A suspended
    Job makes a new pod at once when it goes on, and counts no failure.
    """
    account = seen.children.get(SERVICE_ACCOUNT)
    return account is not None and any(
        pod["metadata"]["creationTimestamp"] < account["metadata"]["creationTimestamp"]
        for pod in seen.pods
        if alive([pod])
    )


def _secret(seen: JobObservation, job: FederatedJob, settings: Settings) -> Iterator[Action]:
    """Its keys, unless they would be some that no silo trusts."""
    if replaced_master(seen, settings) is None:
        yield Create(objects.secret(seen.job, keys_of(seen, job, settings)))


def _volume(seen: JobObservation, job: FederatedJob) -> Iterator[Action]:
    if CLAIM not in seen.children and not seen.claim_conflict:
        yield Apply(objects.claim(seen.job, job))


def _agents_run(course: Course) -> bool:
    """Whether nobody is waited for: the deadline of round 1 must not count the pulling of images."""
    return all(member.ready or member.failed is not None for member in course.members)


def _suspend(batch: Object, suspend: bool) -> Iterator[Action]:
    if not is_deleted(batch) and is_suspended(batch) != suspend:
        yield Apply(suspension(batch, suspend), SUSPENDER, failure_group="suspension")


def _put(seen: JobObservation, wanted: Object) -> Iterator[Action]:
    """Apply the object if it is missing or says something else."""
    kind = kind_of(wanted)
    observed = seen.children.get(kind)
    if observed is None:
        if not _in_the_way(seen, kind.name):
            yield Apply(wanted)
    elif not is_deleted(observed) and not satisfies(observed, wanted):
        yield Apply(wanted | {"metadata": wanted["metadata"] | {"uid": uid_of(observed)}})


def _in_the_way(seen: JobObservation, kind: str) -> bool:
    """Whether an earlier job's object still has the name; it is deleted first."""
    return any(orphan["kind"] == kind for orphan in seen.orphans)
