"""What has left a silo, from what its guard's pods have said: the guard itself has no access to the API server."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import ValidationError

from fedsilo.api.observed import Object, status_of
from fedsilo.api.receipts import StatedReceipts
from fedsilo_operator.silo.observe import AgentObservation
from fedsilo_operator.workloads.agent import GUARD


def receipts(seen: AgentObservation) -> Object | None:
    """The receipts of the longest audit log, since the log only grows; None while no guard has said anything.

    They are of the status where the pods that said them are gone.
    """
    stated: Object | None = status_of(seen.agent).get("receipts")
    said = [report for pod in seen.pods.get(GUARD, ()) for report in _reports(pod)]
    known = [report for report in (stated, *said) if report is not None]
    return max(known, key=lambda report: int(report["auditLines"]), default=None)


def _reports(pod: Object) -> Iterator[Object]:
    """What a guard's container has left at its end; anything that is no such summary is none."""
    for container in status_of(pod).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        try:
            found = StatedReceipts.model_validate(json.loads(ended["message"])["receipts"])
        except (ValidationError, ValueError, KeyError, TypeError, RecursionError):
            continue
        yield found.model_dump(mode="json", by_alias=True)
