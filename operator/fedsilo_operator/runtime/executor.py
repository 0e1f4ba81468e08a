"""Plans are carried out in order: actions, then the status, then events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import CallRefused, Cluster, ClusterError
from fedsilo_operator.objects import MANAGER, ref_of
from fedsilo_operator.plan import Plan
from fedsilo_operator.rejections import REASONS, AlreadyReported, Rejection, diagnosis_of
from fedsilo_operator.runtime.actions import act

log = logging.getLogger("fedsilo")


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
    :raises CallRefused: when something was rejected; everything that does not depend on it was done.
    :raises ClusterError: of the first write that failed otherwise; what comes after it was not tried. Events never
        fail.
    """
    plan = decide(())
    about, rejections = await act(plan.actions, about, cluster)
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
        raise (AlreadyReported if reported else CallRefused)(found.message)
    return plan.requeue_delay


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
