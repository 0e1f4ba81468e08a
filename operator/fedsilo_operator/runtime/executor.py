"""Carries out plans: actions, then the status, then events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from fedsilo.api.observed import Object, uid_of
from fedsilo_operator.cluster.interface import (
    Cluster,
    ClusterError,
    Conflict,
    NotFound,
    Refused,
)
from fedsilo_operator.objects import (
    FEDERATED_JOB,
    JOB_UID,
    MANAGED_BY,
    MANAGER,
    SILO_AGENT,
    labels_of,
    ref_of,
)
from fedsilo_operator.plan import Action, Apply, Create, Merge, Plan
from fedsilo_operator.rejections import (
    REASONS,
    AlreadyReported,
    NameTaken,
    Rejection,
    diagnosis_of,
    rejection,
)

log = logging.getLogger("fedsilo")

WATCHED_ENTIRELY = (FEDERATED_JOB, SILO_AGENT)
"""Kinds that are watched without a selector: no object of theirs can have a name without being in the caches."""


async def carry_out(
    decide: Callable[[tuple[Rejection, ...]], Plan], about: Object, cluster: Cluster
) -> float | None:
    """Actions, then the status, then events.

    Events come last, so that none is recorded twice when the status has to wait for the next try.

    :param decide: makes the plan, given what was rejected: nothing at first. If the API server rejects something, it is
        called again for the status and the events that report it.
    :param about: the object that was reconciled, as observed; the status is written to this version of it, or to what
        the plan's own actions made of it.
    :return: seconds after which to reconcile again, as the plan says.
    :raises Refused: when something was rejected; everything that does not depend on it was done.
    :raises ClusterError: of the first write that failed otherwise; what comes after it was not tried. Events never
        fail.
    """
    plan = decide(())
    about, rejections = await _act(plan.actions, about, cluster)
    if rejections:
        plan = decide(rejections)
    if plan.status is not None:
        await cluster.apply(_with_status(about, plan.status), manager=MANAGER, status=True)
    for event in plan.events:
        try:
            await cluster.event(event)
        except ClusterError as error:
            log.warning("%s %s: no event %s: %s", about["kind"], ref_of(about), event.reason, error)
    if (found := diagnosis_of(rejections)) is not None:
        reported = _reports_rejection(about.get("status") if plan.status is None else plan.status)
        raise (AlreadyReported if reported else Refused)(found.message)
    return plan.requeue_delay


async def _act(
    actions: Iterable[Action], about: Object, cluster: Cluster
) -> tuple[Object, tuple[Rejection, ...]]:
    """Do the actions; returns the reconciled object as they left it, and what was rejected."""
    rejections: list[Rejection] = []
    ended: set[str] = set()
    for action in actions:
        if "" in ended or action.failure_group in ended:
            continue
        try:
            answer = await _do(action, cluster)
        except (Refused, NotFound) as error:
            # NotFound: the namespace is gone, or the kind is not served.
            rejections.append(rejection(action.kind, action.ref, error))
            ended.add(action.failure_group)
        else:
            about = answer if answer is not None and uid_of(answer) == uid_of(about) else about
    return about, tuple(rejections)


async def _do(action: Action, cluster: Cluster) -> Object | None:
    """Do one action; returns the object as an apply left it."""
    if isinstance(action, Apply):
        if "uid" not in action.object["metadata"] and action.kind not in WATCHED_ENTIRELY:
            await _require_ownership(action, cluster)
        return await cluster.apply(action.object, manager=action.manager)
    if isinstance(action, Create):
        with suppress(Conflict):
            await cluster.create(action.object)
    elif isinstance(action, Merge):
        await cluster.merge(action.object)
    else:
        await cluster.delete(action.kind, action.ref, uid=action.uid)
    return None


async def _require_ownership(action: Apply, cluster: Cluster) -> None:
    """An apply would merge into whatever has the name, and the watches see only what carries the operator's labels.

    :raises Refused: when somebody else made it.
    """
    try:
        found = await cluster.get(action.kind, action.ref)
    except NotFound:
        return
    if _has_same_owner(found, action.object):
        return
    if _is_of_earlier_owner(found, action.object):
        raise Conflict(f"{action.kind} {action.ref} of an earlier owner is not gone yet")
    raise NameTaken(f"{action.kind} {action.ref} is another's")


def _has_same_owner(found: Object, wanted: Object) -> bool:
    """Whether both have the same owner; what has none, such as a claim, is known by its labels."""
    owners = wanted["metadata"].get("ownerReferences")
    if owners:
        return _controllers(found, "uid") & {owner["uid"] for owner in owners} != set()
    names = [name for name in (MANAGED_BY, JOB_UID) if name in labels_of(wanted)]
    return all(labels_of(found).get(name) == labels_of(wanted)[name] for name in names)


def _is_of_earlier_owner(found: Object, wanted: Object) -> bool:
    """Whether it belongs to an object of the owner's name that is gone, and so is about to go itself."""
    owners = wanted["metadata"].get("ownerReferences") or ()
    return _controllers(found, "kind", "name") & {(owner["kind"], owner["name"]) for owner in owners} != set()


def _controllers(found: Object, *names: str) -> set[Any]:
    references = found["metadata"].get("ownerReferences") or ()
    of = [
        tuple(reference.get(name) for name in names)
        for reference in references
        if reference.get("controller")
    ]
    return {values[0] if len(names) == 1 else values for values in of}


def _reports_rejection(status: Mapping[str, Any] | None) -> bool:
    return any(item["reason"] in REASONS for item in (status or {}).get("conditions") or ())


def _with_status(about: Object, status: Object) -> Object:
    """The body of an apply to the status.

    The API server ignores the uid here. It is the version that keeps the status from an object that was created anew
    under the name, and from one that has changed since it was observed.
    """
    names = ("namespace", "name", "uid", "resourceVersion")
    return {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "metadata": {name: about["metadata"][name] for name in names},
        "status": status,
    }
