"""Conditions as meta/v1 defines them: `lastTransitionTime` moves only when `status` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, status_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.reasons import Diagnosis, Reason

Status = Literal["True", "False", "Unknown"]

MAX_CONDITION_MESSAGE_CHARACTERS = 32768
"""Characters of a message, as meta/v1 allows."""


@dataclass(frozen=True)
class Condition:
    """What a controller found out about one aspect of an object."""

    type: ConditionType
    status: Status
    reason: Reason | str
    message: str = ""

    @classmethod
    def of(cls, type: ConditionType, status: Status, diagnosis: Diagnosis) -> Condition:
        """The condition that states a diagnosis."""
        return cls(type, status, diagnosis.reason, diagnosis.message)


def as_status(found: Iterable[Condition], obj: Object, now: datetime) -> list[dict[str, Any]]:
    """The `status.conditions` of an object.

    :param obj: the object as observed, whose earlier conditions keep their transition times.
    """
    before = {item["type"]: item for item in status_of(obj).get("conditions") or ()}
    generation = obj["metadata"].get("generation", 0)
    return [_as_dict(condition, before.get(condition.type), generation, now) for condition in found]


def _as_dict(
    condition: Condition, before: Mapping[str, Any] | None, generation: int, now: datetime
) -> dict[str, Any]:
    unchanged = before is not None and before["status"] == condition.status
    return {
        "type": str(condition.type),
        "status": condition.status,
        "reason": str(condition.reason),
        "message": condition.message[:MAX_CONDITION_MESSAGE_CHARACTERS],
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if unchanged and before else timestamp(now),
    }
