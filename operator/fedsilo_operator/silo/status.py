"""The status of a SiloAgent, from its state: conditions, what is written, and the Events about what changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.diagnosis import MAX_CONDITION_MESSAGE_CHARACTERS, Condition, as_status
from fedsilo.api.observed import Object, condition
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.objects import satisfies
from fedsilo_operator.reasons import ALARMING, Reason
from fedsilo_operator.silo.state import AgentState

_NO_NEWS = frozenset({Reason.ADMITTING, Reason.FINISHED, Reason.STARTING})
"""Reasons of `Ready` that another condition explains better, or that the next one follows: as in a job, waiting is no
news."""


def conditions(state: AgentState) -> list[Condition]:
    """`Admitted`, `Ready`, and at the end `Finished` or `Failed`."""
    if state.admission is None:
        return _recorded(state.agent)
    admitted = Condition.of(ConditionType.ADMITTED, state.admission.status, state.admission.diagnosis)
    runs = state.phase == AgentPhase.RUNNING
    ready = Condition.of(ConditionType.READY, "True" if runs else "False", state.ready)
    if state.outcome is None:
        return [admitted, ready]
    end = ConditionType.FINISHED if state.outcome.succeeded else ConditionType.FAILED
    return [admitted, ready, Condition.of(end, "True", state.outcome.diagnosis)]


def _recorded(agent: Object) -> list[Condition]:
    """Conditions as they were written: an end is never taken back, whatever is observed after it."""
    return [
        Condition(found["type"], found["status"], found["reason"], found.get("message", ""))
        for found in agent["status"]["conditions"]
    ]


def document(state: AgentState, now: datetime) -> dict[str, Any] | None:
    """The operator's part of the status; None where it is there already."""
    status = {
        "observedGeneration": state.agent["metadata"].get("generation", 0),
        "phase": str(state.phase),
        "message": state.message[:MAX_CONDITION_MESSAGE_CHARACTERS],
        "conditions": as_status(conditions(state), state.agent, now),
        **({"proposal": state.proposal} if state.proposal else {}),
        **({"decision": state.decision} if state.decision else {}),
        **({"configuration": state.configuration} if state.configuration else {}),
        **({"receipts": state.receipts} if state.receipts else {}),
        **({"ledger": state.ledger} if state.ledger else {}),
    }
    return None if satisfies(state.agent.get("status"), status) else status


def events(state: AgentState) -> Iterator[Event]:
    """One for each transition that people want to know of; Warning where somebody must act.

    A failure is reported by `Failed`, and not again by `Ready`, which has the same message.
    """
    stated = conditions(state)
    failures = [one.message for one in stated if one.type == ConditionType.FAILED]
    for one in stated:
        if one.type == ConditionType.READY and one.message in failures:
            continue
        if _is_transition(state.agent, one):
            yield Event(
                state.agent, "Warning" if _is_alarming(one) else "Normal", str(one.reason), one.message
            )


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
    if stated.reason in ALARMING:
        return True
    if stated.type == ConditionType.READY:
        return stated.status != "True" and stated.reason not in (Reason.STARTING, Reason.SUSPENDED)
    return stated.type == ConditionType.FAILED or stated.status == "False"
