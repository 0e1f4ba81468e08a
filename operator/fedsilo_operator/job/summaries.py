"""A job's conditions for tools that know no jobs: `Ready` once there is a model, `Stalled` where only a person helps.

Source: kstatus, which `kubectl wait`, Flux, Argo CD and others go by. Both repeat what other conditions say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition

SUMMARIES = (ConditionType.READY, ConditionType.STALLED)
"""Conditions that have no Event of their own."""

_STAGES = (
    ConditionType.FAILED,
    ConditionType.SUSPENDED,
    ConditionType.ACCEPTED,
    ConditionType.ADMITTED,
    ConditionType.SILOS_READY,
    ConditionType.RUNNING,
)


def summaries(found: Sequence[Condition]) -> Iterator[Condition]:
    """`Ready`, and `Stalled` where the job has failed.

    :param found: all other conditions of the job.
    """
    known = {one.type: one for one in found}
    if (complete := known.get(ConditionType.COMPLETE)) is not None and complete.status == "True":
        yield Condition(ConditionType.READY, "True", complete.reason, complete.message)
        return
    cause = next((one for name in _STAGES if (one := known.get(name)) is not None and _explains(one)), None)
    cause = cause or known.get(ConditionType.RUNNING) or known.get(ConditionType.ACCEPTED)
    if cause is None:
        return
    yield Condition(ConditionType.READY, "False", cause.reason, cause.message)
    if cause.type == ConditionType.FAILED:
        yield Condition(ConditionType.STALLED, "True", cause.reason, cause.message)


def _explains(one: Condition) -> bool:
    """Whether a condition says why there is no model yet."""
    bad = "True" if one.type in (ConditionType.FAILED, ConditionType.SUSPENDED) else "False"
    return one.status == bad
