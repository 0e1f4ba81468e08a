"""A job's silos as a reader sees them: from their SiloAgents, or the job's status where those are closed to him."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fedsilo.api.conditions import GUARD_STATE_TEXTS, AgentPhase, ConditionType
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo.cli.cluster.text import sentence
from fedsilo.cli.cluster.time_format import since_text

_OBJECTIONS: Mapping[str | None, str] = {
    AgentPhase.REFUSED: "PolicyRefused",
    AgentPhase.APPROVAL_PENDING: "ApprovalPending",
}
"""Phase of an agent that may not run -> reason of its condition `Admitted`."""

_UNDECIDED_PHASES = (None, "", AgentPhase.PENDING)
_READY_PHASES = (AgentPhase.RUNNING, AgentPhase.FINISHED)

MAX_NAMES = 10
"""Silos that a sentence names; a job may have a thousand."""


@dataclass(frozen=True)
class SiloView:
    """One silo of a job: its conditions and its agent's phase.

    :param agent: name of its SiloAgent, where it can be seen.
    :param admitted: its condition `Admitted`; without a time where only the job's status has it.
    :param ready: its condition `Ready`; without a time where only the job's status has it.
    :param phase: the phase that its agent reports, empty where there is none.
    :param hindrance: what keeps its guard from going on, as the guard itself says.
    :param remote: whether its institution is outside of the cluster, as its SiloAgent tells.
    """

    name: str
    namespace: str
    agent: str | None
    admitted: Mapping[str, Any]
    ready: Mapping[str, Any]
    phase: str
    remote: bool = False
    hindrance: str = ""

    @property
    def awaits_approval(self) -> bool:
        """Whether nothing but a person's approval is missing."""
        phase = self.phase or ("ApprovalPending" if self.admitted["reason"] == "ApprovalPending" else "")
        return self.admitted["status"] == "False" and phase == "ApprovalPending"

    @property
    def reference(self) -> str:
        """Its name within a sentence."""
        return f"{self.namespace}/{self.name}"

    @property
    def hindrance_text(self) -> str:
        """What keeps its guard from going on, as a sentence."""
        return sentence(f"{self.reference}: {self.hindrance}: {GUARD_STATE_TEXTS.get(self.hindrance, '')}")

    def problem(self, now: datetime) -> str:
        """What keeps its agent from running, as a sentence."""
        begin = (
            f" {since_text(self.ready['lastTransitionTime'], now)}"
            if self.ready["lastTransitionTime"]
            else ""
        )
        reason = f"{self.ready['reason']}: " if self.ready["reason"] else ""
        return sentence(f"{self.reference}{begin}: {reason}{self.ready['message']}")


def remote_decision_text(silo: str, agent: str, namespace: str) -> str:
    """Who decides about a job in an institution outside of the cluster, and with which command.

    :param silo: `namespace/name`.
    :param agent: name of the SiloAgent, which is the same there.
    """
    return (
        f"{silo} decides outside of this cluster; ask it to run `fedsilo silo approve {agent}` there, or, in a cluster "
        f"of its own, `kubectl fedsilo approve {agent} -n {namespace}`"
    )


def silo_views(job: Object, agents: Sequence[Object]) -> list[SiloView]:
    """The silos in the order of the job's status, then those that only have an agent; without those left out."""
    by_silo = {agent["spec"]["silo"]["name"]: agent for agent in agents}
    entries = {entry["name"]: entry for entry in status_of(job).get("silos") or ()}
    names = {**entries, **by_silo}
    return [
        _view(name, entries.get(name, {}), by_silo.get(name))
        for name in names
        if entries.get(name, {}).get("phase") != AgentPhase.LEFT_OUT
    ]


def _view(name: str, entry: Mapping[str, Any], agent: Object | None) -> SiloView:
    if agent is None:
        phase, message = entry.get("phase"), entry.get("message") or ""
        decided = "False" if phase in _OBJECTIONS else "Unknown" if phase in _UNDECIDED_PHASES else "True"
        return SiloView(
            name,
            entry.get("namespace") or "default",
            None,
            _condition(decided, _OBJECTIONS.get(phase, ""), message),
            _condition("True" if phase in _READY_PHASES else "False", "", message),
            phase or "",
            hindrance=entry.get("hindrance") or "",
        )
    return SiloView(
        name,
        agent["metadata"]["namespace"],
        agent["metadata"]["name"],
        condition(agent, ConditionType.ADMITTED) or _condition("Unknown", "", ""),
        _ready_condition(agent),
        status_of(agent).get("phase") or "",
        remote="route" in agent["spec"],
        hindrance=entry.get("hindrance") or "",
    )


def _ready_condition(agent: Object) -> Mapping[str, Any]:
    """An agent that has run to its end keeps nobody waiting."""
    if holds(agent, ConditionType.FINISHED):
        return _condition("True", "", "")
    return condition(agent, ConditionType.READY) or _condition("Unknown", "", "")


def _condition(status: str, reason: str, message: str) -> Mapping[str, Any]:
    return {"status": status, "reason": reason, "message": message, "lastTransitionTime": None}
