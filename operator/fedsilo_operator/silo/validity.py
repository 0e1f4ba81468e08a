"""Whether a Silo is one that jobs can use, as its condition `Valid`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition
from fedsilo.api.faults import Fault
from fedsilo.api.messages import faults_of
from fedsilo.api.observed import Object, condition
from fedsilo.api.silo import Silo
from fedsilo.silo.silo_check import silo_findings
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.messages import join_lines
from fedsilo_operator.reasons import Reason


def validity(silo: Object) -> Condition:
    """The condition `Valid` of a Silo, with everything that is wrong at once: field, value and remedy."""
    content = {name: item for name, item in silo.items() if name != "status"}
    try:
        found = [Fault("", "", *finding) for finding in silo_findings(Silo.model_validate(content))]
    except ValidationError as error:
        found = faults_of(error, Silo, file="", document="")
    if found:
        lines = [f"{fault.line()}." for fault in found]
        return Condition(ConditionType.VALID, "False", Reason.MANIFEST_INVALID, join_lines(lines))
    return Condition(ConditionType.VALID, "True", Reason.VALID, "Jobs can use what the Silo offers.")


def validity_events(silo: Object) -> Iterator[Event]:
    """One Event when a Silo begins to be wrong."""
    found = validity(silo)
    before = condition(silo, ConditionType.VALID)
    if found.status == "False" and (before is None or before["status"] == "True"):
        yield Event(silo, "Warning", found.reason, found.message)
