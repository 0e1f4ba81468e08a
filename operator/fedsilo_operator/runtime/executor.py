"""Do what a plan says."""

from __future__ import annotations

import logging
from contextlib import suppress

from fedsilo_operator.cluster.interface import Cluster, ClusterError, Conflict
from fedsilo_operator.objects import MANAGER, Object, ref_of, uid_of
from fedsilo_operator.plan import Action, Apply, Create, Plan

log = logging.getLogger("fedsilo")


async def carry_out(plan: Plan, about: Object, cluster: Cluster) -> None:
    """Actions in order, then events, then the status.

    :param about: the object that was reconciled, as observed; the status is written to this identity only.
    :raises ClusterError: of the first write that failed; what comes after it was not tried. Events never fail.
    """
    for action in plan.actions:
        await _do(action, cluster)
    for event in plan.events:
        try:
            await cluster.event(event)
        except ClusterError as error:
            log.warning("%s %s: no event %s: %s", about["kind"], ref_of(about), event.reason, error)
    if plan.status is not None:
        ref = ref_of(about)
        written = {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": uid_of(about)},
            "status": plan.status,
        }
        await cluster.apply(written, manager=MANAGER, status=True)


async def _do(action: Action, cluster: Cluster) -> None:
    if isinstance(action, Apply):
        await cluster.apply(action.object, manager=action.manager)
    elif isinstance(action, Create):
        with suppress(Conflict):
            await cluster.create(action.object)
    else:
        await cluster.delete(action.kind, action.ref, uid=action.uid)
