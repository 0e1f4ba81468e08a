"""Who has suspended a Job, and how the operator stops and resumes one beside a queue that does the same.

A queue such as Kueue suspends a Job (`spec.suspend`) until it has room for it, and resumes what somebody else suspends
as soon as it has. So the operator never resumes what another has suspended, owns the field only while it has suspended
the Job itself, and stops a Job that is in a queue by deleting it: it leaves the queue, and is made again when it is to
run.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.observed import Object, uid_of
from fedsilo_operator.objects import JOB, MANAGER, is_deleted, labels_of, ref_of, suspend_managers
from fedsilo_operator.plan import Action, ApplyAction, DeleteAction, MergeAction

SUSPEND_MANAGER = "fedsilo-suspend"
"""Field manager of a Job's `spec.suspend` while the operator has it suspended, and of nothing else."""

QUEUE = "kueue.x-k8s.io/queue-name"
"""Label by which a Job waits in a queue of Kueue."""


def is_suspended(job: Object) -> bool:
    """Whether a Job is suspended, so that it has no pods."""
    return bool(job["spec"].get("suspend", False))


def queue_of(job: Object) -> str | None:
    """The queue in which a Job is; None where it is in none."""
    return labels_of(job).get(QUEUE) or None


def without_queue(job: Object) -> Object:
    """A Job to be made that is in no queue, whatever labels its pods have: a queue reads those of the Job."""
    labels = {name: value for name, value in labels_of(job).items() if name != QUEUE}
    return {**job, "metadata": {**job["metadata"], "labels": labels}}


def suspender(job: Object) -> str | None:
    """Who has suspended a Job, as text for people; None where it runs, or where the operator has suspended it itself.

    What a queue suspends as the Job is made has no field manager: an admission webhook has changed it.
    """
    if not is_suspended(job):
        return None
    managers, queue = suspend_managers(job), queue_of(job)
    if {SUSPEND_MANAGER, MANAGER} & set(managers):
        return None
    names = [*([f"queue {queue}"] if queue else []), *(f"field manager {manager}" for manager in managers)]
    return " by ".join(names) or None


def is_waiting(job: Object | None) -> bool:
    """Whether a Job waits until another resumes it."""
    return job is not None and suspender(job) is not None


def resumption_actions(job: Object, failure_group: str) -> Iterator[Action]:
    """The action that resumes a Job, unless another has suspended it, and gives the field up where that is possible."""
    if is_deleted(job) or not is_suspended(job) or suspender(job) is not None:
        return
    if SUSPEND_MANAGER in suspend_managers(job):
        yield ApplyAction(suspension(job, False), SUSPEND_MANAGER, failure_group=failure_group)
    else:
        yield MergeAction({**_body(job), "spec": {"suspend": False}}, failure_group=failure_group)


def stop_actions(job: Object, failure_group: str, *, for_good: bool) -> Iterator[Action]:
    """The action that removes the pods of a Job.

    :param for_good: whether the Job may be deleted where it is in a queue: nothing makes it again before it is to run.
    """
    if is_deleted(job):
        return
    if queue_of(job) is not None and for_good:
        yield DeleteAction(JOB, ref_of(job), uid_of(job), failure_group=failure_group)
    elif is_suspended(job):
        return
    elif set(suspend_managers(job)) - {SUSPEND_MANAGER}:
        # Who has resumed it owns the field, be it the operator by a merge: an apply would not take it away.
        yield MergeAction(suspension(job, True), failure_group=failure_group)
    else:
        yield ApplyAction(suspension(job, True), SUSPEND_MANAGER, failure_group=failure_group)


def suspension(job: Object, suspend: bool) -> Object:
    """The body that suspends or resumes a Job and touches nothing else, for the field manager `SUSPEND_MANAGER`.

    To resume, the manager leaves its field out: the API server gives that its default, and nobody owns it.

    :param job: the Job as observed; its pod template stays what it was when the Job was made.
    """
    return _body(job) | ({"spec": {"suspend": True}} if suspend else {})


def _body(job: Object) -> Object:
    content = job["metadata"]
    metadata = {"name": content["name"], "namespace": content["namespace"], "uid": content["uid"]}
    return {"apiVersion": JOB.api, "kind": JOB.name, "metadata": metadata}
