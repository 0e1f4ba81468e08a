"""What of a SiloAgent's status is written, and the Events about what changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition
from fedsilo.api.observed import Object, condition
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.objects import satisfies
from fedsilo_operator.reasons import HARMLESS_REASONS, WARNING_REASONS, Reason
from fedsilo_operator.silo.state import AgentState

_NO_NEWS = frozenset({Reason.ADMITTING, Reason.FINISHED, Reason.STARTING})
"""Reasons of `Ready` that another condition explains better, or that the next one follows: as in a job, waiting is no
news."""

_EXPECTED_REASONS = frozenset({Reason.STARTING, Reason.SUSPENDED}) | HARMLESS_REASONS
"""Reasons for which an agent does not run and nobody needs to act."""


def document(state: AgentState, now: datetime) -> Object | None:
    """The operator's part of the status; None where it is there already."""
    status = state.found.status(state.agent, now)
    return None if satisfies(state.agent.get("status"), status) else status


def events(state: AgentState) -> Iterator[Event]:
    """One for each transition that people want to know of; Warning where somebody must act.

    A failure is reported by `Failed`, and not again by `Ready`, which has the same message.
    """
    agent, stated = state.agent, state.found.conditions
    failures = [one.message for one in stated if one.type == ConditionType.FAILED]
    for one in stated:
        if one.type == ConditionType.READY and one.message in failures:
            continue
        if _is_transition(agent, one):
            yield Event(agent, "Warning" if _is_alarming(one) else "Normal", str(one.reason), one.message)


def _is_transition(agent: Object, stated: Condition) -> bool:
    """Whether status or reason are new, and worth an Event."""
    before = condition(agent, stated.type)
    if before is not None and (before["status"], before["reason"]) == (stated.status, stated.reason):
        return False
    if stated.type != ConditionType.READY:
        return True
    first_suspension = before is None and stated.reason == Reason.SUSPENDED
    return stated.reason not in _NO_NEWS and not first_suspension


def _is_alarming(stated: Condition) -> bool:
    if stated.reason in WARNING_REASONS:
        return True
    if stated.type == ConditionType.READY:
        return stated.status != "True" and stated.reason not in _EXPECTED_REASONS
    return stated.type == ConditionType.FAILED or stated.status == "False"
