"""Why an object is in its state, and the conditions that say so, as meta/v1 defines them.

`lastTransitionTime` of a condition moves only when its `status` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, status_of
from fedsilo.api.timestamps import timestamp

Status = Literal["True", "False", "Unknown"]

MAX_CONDITION_MESSAGE_CHARACTERS = 32768
"""Characters of a message, as meta/v1 allows."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found out about something, for a condition or an Event.

    :param reason: one CamelCase word that programs match on; a program's own where that left one.
    :param message: what, why, and what to do, as sentences.
    :param permanent: waiting does not help: a spec has to change.
    """

    reason: str
    message: str
    permanent: bool = False

    def with_subject(self, subject: str) -> Diagnosis:
        """The diagnosis with its subject before the message."""
        return replace(self, message=f"{subject}: {self.message}")


@dataclass(frozen=True)
class Outcome:
    """How something ended that was to run.

    :param diagnosis: with the reason of the process where it left one.
    """

    succeeded: bool
    diagnosis: Diagnosis


@dataclass(frozen=True)
class Condition:
    """What was found out about one aspect of an object."""

    type: ConditionType
    status: Status
    reason: str
    message: str = ""

    @classmethod
    def of(cls, type: ConditionType, status: Status, diagnosis: Diagnosis) -> Condition:
        """The condition that states a diagnosis."""
        return cls(type, status, diagnosis.reason, diagnosis.message)


def as_status(found: Iterable[Condition], obj: Object, now: datetime) -> list[dict[str, Any]]:
    """The `status.conditions` of an object; one that counts no generations has none in its conditions.

    :param obj: the object as observed, whose earlier conditions keep their transition times.
    """
    before = {item["type"]: item for item in status_of(obj).get("conditions") or ()}
    return [_as_dict(condition, before.get(condition.type), obj, now) for condition in found]


def observed_generation(obj: Object) -> dict[str, int]:
    """The field that says which generation of an object was looked at."""
    return {"observedGeneration": obj["metadata"]["generation"]} if "generation" in obj["metadata"] else {}


def _as_dict(
    condition: Condition, before: Mapping[str, Any] | None, obj: Object, now: datetime
) -> dict[str, Any]:
    unchanged = before is not None and before["status"] == condition.status
    return {
        "type": str(condition.type),
        "status": condition.status,
        "reason": str(condition.reason),
        "message": condition.message[:MAX_CONDITION_MESSAGE_CHARACTERS],
        **observed_generation(obj),
        "lastTransitionTime": before["lastTransitionTime"] if unchanged and before else timestamp(now),
    }
