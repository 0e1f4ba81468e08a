"""Do what a plan says."""

from __future__ import annotations

import logging
from contextlib import suppress

from fedsilo_operator.cluster.interface import Cluster, ClusterError, Conflict
from fedsilo_operator.objects import MANAGER, Object, ref_of, uid_of
from fedsilo_operator.plan import Action, Apply, Create, Plan

log = logging.getLogger("fedsilo")


async def carry_out(plan: Plan, about: Object, cluster: Cluster) -> None:
    """Actions in order, then the status, then events.

    Events come last, so that none is told again when the status has to wait for the next try.

    :param about: the object that was reconciled, as observed; the status is written to this version of it, or to what
        the plan's own actions made of it.
    :raises ClusterError: of the first write that failed; what comes after it was not tried. Events never fail.
    """
    for action in plan.actions:
        answer = await _do(action, cluster)
        if answer is not None and uid_of(answer) == uid_of(about):
            about = answer
    if plan.status is not None:
        await cluster.apply(_with_status(about, plan.status), manager=MANAGER, status=True)
    for event in plan.events:
        try:
            await cluster.event(event)
        except ClusterError as error:
            log.warning("%s %s: no event %s: %s", about["kind"], ref_of(about), event.reason, error)


async def _do(action: Action, cluster: Cluster) -> Object | None:
    """The object as an apply left it."""
    if isinstance(action, Apply):
        return await cluster.apply(action.object, manager=action.manager)
    if isinstance(action, Create):
        with suppress(Conflict):
            await cluster.create(action.object)
    else:
        await cluster.delete(action.kind, action.ref, uid=action.uid)
    return None


def _with_status(about: Object, status: Object) -> Object:
    """The body of an apply to the status.

    The API server takes no notice of the uid here. It is the version that keeps the status from an object that was
    made anew under the name, and from one that was decided about on older news.
    """
    names = ("namespace", "name", "uid", "resourceVersion")
    return {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "metadata": {name: about["metadata"][name] for name in names},
        "status": status,
    }
