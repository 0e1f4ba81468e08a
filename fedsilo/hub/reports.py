"""What the institution reports of each of its agents, and when: what has changed, until the hub has taken it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from fedsilo.api.digest import canonical_digest
from fedsilo.hub.contact import PAUSES

REPORTED_FIELDS = ("phase", "message", "conditions", "proposal", "decision", "receipts")
"""Fields of a SiloAgent's status that mean the same at the hub; others are of the place where the agent runs."""


@dataclass(frozen=True)
class AgentReport:
    """One agent's status, as it goes to the hub."""

    agent: str
    uid: str
    status: Mapping[str, Any]

    @override
    def __str__(self) -> str:
        return f"SiloAgent {self.agent}"


@dataclass(frozen=True)
class OfferReport:
    """The silo's signed offer."""

    statement: Mapping[str, Any]

    @override
    def __str__(self) -> str:
        return "the offer"


@dataclass
class _PendingReport:
    """A report that the hub has yet to take, or has taken.

    :ivar digest: of what it says.
    :ivar taken: digest of what the hub has taken last.
    :ivar due: when it is tried next.
    """

    report: AgentReport | OfferReport
    digest: str
    taken: str = ""
    failures: int = 0
    due: float = 0.0


_OFFER = ("offer", "")


class ReportQueue:
    """The reports of one silo. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str], _PendingReport] = {}

    def state(self, agent: str, uid: str, status: Mapping[str, Any]) -> None:
        """Take note of an agent's status; what the hub has taken already is not sent again."""
        known = self._pending.get(_place(agent))
        if known is not None and isinstance(known.report, AgentReport) and known.report.uid != uid:
            self.forget(agent)
        self._note(_place(agent), AgentReport(agent, uid, reported_status(status)))

    def publish(self, statement: Mapping[str, Any]) -> None:
        """Take note of the silo's offer."""
        self._note(_OFFER, OfferReport(statement))

    def forget(self, agent: str) -> None:
        """An agent is gone, and nothing about it is reported any more."""
        self._pending.pop(_place(agent), None)

    def agents(self) -> set[str]:
        """Names of the agents of which a status is known."""
        return {name for kind, name in self._pending if kind == "agent"}

    def next_report(self, now: float) -> AgentReport | OfferReport | None:
        """The report that is due and has waited longest; None while none is."""
        due = [one for one in self._open() if one.due <= now]
        return min(due, key=lambda one: one.due).report if due else None

    def wait(self, now: float) -> float | None:
        """Seconds until one is due; None while there is nothing to report."""
        dues = [one.due for one in self._open()]
        return max(0.0, min(dues) - now) if dues else None

    def took(self, report: AgentReport | OfferReport) -> None:
        """The hub has this report; if another has taken its place meanwhile, that one is still to be sent."""
        if (known := self._matching_entry(report)) is not None:
            known.taken, known.failures, known.due = _digest(report), 0, 0.0

    def postpone_report(self, report: AgentReport | OfferReport, now: float) -> None:
        """The hub has not taken it; it is due again after a pause, with whatever it says then."""
        if (known := self._matching_entry(report)) is not None:
            known.due = now + PAUSES.pause(known.failures)
            known.failures += 1

    def flush_soon(self) -> None:
        """The hub is there again: all that is open is due at once."""
        for one in self._pending.values():
            one.due, one.failures = 0.0, 0

    def _note(self, place: tuple[str, str], report: AgentReport | OfferReport) -> None:
        known, digest = self._pending.get(place), _digest(report)
        if known is None:
            self._pending[place] = _PendingReport(report, digest)
        else:
            known.report, known.digest = report, digest

    def _matching_entry(self, report: AgentReport | OfferReport) -> _PendingReport | None:
        """The entry that a report was of, unless it is about another agent of the name since."""
        if isinstance(report, OfferReport):
            return self._pending.get(_OFFER)
        known = self._pending.get(_place(report.agent))
        if known is None or not isinstance(known.report, AgentReport) or known.report.uid != report.uid:
            return None
        return known

    def _open(self) -> list[_PendingReport]:
        return [one for one in self._pending.values() if one.taken != one.digest]


def _place(agent: str) -> tuple[str, str]:
    return "agent", agent


def _digest(report: AgentReport | OfferReport) -> str:
    return canonical_digest(dict(report.statement if isinstance(report, OfferReport) else report.status))


def reported_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """What of a status goes to the hub. A generation counts writes of the place where the object is."""
    found = {name: status[name] for name in REPORTED_FIELDS if name in status}
    if "conditions" in found:
        found["conditions"] = [
            {name: value for name, value in one.items() if name != "observedGeneration"}
            for one in found["conditions"]
        ]
    return found
