"""What a job waits for, since when and until when, as facts: whoever shows them has the clock and the time zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object
from fedsilo.api.text import join_names
from fedsilo.explanation.explain import Cause, RoundStatus, WaitState, changed_since_start, explain

TEXTS = {
    WaitState.COMPLETE: "Complete",
    WaitState.FAILED: "Failed",
    WaitState.SUSPENDED: "Suspended; finished rounds are kept",
    WaitState.RESUMING: "Suspended; finished rounds are kept",
}
"""Text for each state that a condition determines."""

STEPS: Mapping[ConditionType | None, str] = {
    ConditionType.ACCEPTED: "Waits to be accepted",
    ConditionType.ADMITTED: "Waits for its silos to admit it",
    ConditionType.SILOS_READY: "Waits for its silos' agents to run",
    ConditionType.RUNNING: "Waits for its aggregator",
}
"""What a job waits for until each of these conditions holds."""

MAX_NAMES = 6
"""Silos that a sentence names; a job may have a thousand."""


@dataclass(frozen=True)
class WaitingView:
    """Where a job stands, described for a person.

    :param text: a sentence, without its end.
    :param reason: of the condition that explains it, in one word.
    :param message: more of it, as the operator has written it, with a remedy where there is one.
    :param since: RFC 3339 time.
    :param until: RFC 3339 time, where something ends by itself.
    """

    text: str
    reason: str = ""
    message: str = ""
    since: str | None = None
    until: str | None = None


def waiting(job: Object) -> dict[str, Any]:
    """Where the job stands."""
    return asdict(_waiting(job))


def _waiting(job: Object) -> WaitingView:
    found = explain(job)
    if found.state == WaitState.DELETING:
        return WaitingView("Is being deleted; its model's volume stays", since=found.cause.since)
    if found.state in TEXTS:
        return _quote(TEXTS[found.state], found.cause)
    if found.state == WaitState.UNOBSERVED:
        return WaitingView("Waits for the operator to look at it", since=found.cause.since)
    if (changed := changed_since_start(job)) is not None:
        return _quote("Goes on as it began, and shows another spec", changed)
    if found.unmet is not None:
        return _quote(STEPS[found.unmet.condition], found.unmet)
    if found.round is None:
        return WaitingView("Is between two rounds", since=found.cause.since)
    return _in_round(found.round)


def _quote(text: str, cause: Cause) -> WaitingView:
    return WaitingView(text, cause.reason, cause.message, cause.since)


def _in_round(round: RoundStatus) -> WaitingView:
    if not round.awaited:
        return WaitingView("Folds what the silos sent, or scores the model", since=round.since)
    text = f"Waits for {join_names(round.awaited, MAX_NAMES)}"
    return WaitingView(text, "", _at_the_deadline(round), round.since, round.until)


def _at_the_deadline(round: RoundStatus) -> str:
    have = f"{round.answered} of {round.asked} have answered"
    if round.has_quorum:
        return f"{have}, which is enough: at the deadline the round closes without the others."
    needed = "all" if round.needs_all else round.needed
    return f"{have}, {needed} are needed: at the deadline the job fails with fewer."
