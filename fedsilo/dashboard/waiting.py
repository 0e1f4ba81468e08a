"""What a job waits for, since when and until when, as facts: whoever shows them knows the time and the time zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedsilo.api.job import quorum
from fedsilo.api.observed import condition, holds, status_of
from fedsilo.dashboard.scene import Object

STEPS = {
    "Accepted": "Waits to be accepted",
    "Admitted": "Waits for its silos to admit it",
    "SilosReady": "Waits for its silos' agents to run",
    "Running": "Waits for its aggregator",
}
"""Conditions in the order in which a job comes to them, and what it waits for until each holds."""

MOST_NAMES = 6
"""Silos that a sentence names; a job may have a thousand."""


@dataclass(frozen=True)
class Waiting:
    """What there is to say about where a job stands.

    :param text: a sentence, without its end.
    :param reason: of the condition that says so, in one word.
    :param message: more of it, as the operator has written it, with a remedy where there is one.
    :param since: RFC 3339 time; likewise `until`, where something ends by itself.
    """

    text: str
    reason: str = ""
    message: str = ""
    since: str | None = None
    until: str | None = None


def waiting(job: Object) -> dict[str, Any]:
    """Where the job stands, in the order in which a job comes to it."""
    return asdict(_waiting(job))


def _waiting(job: Object) -> Waiting:
    status, created = status_of(job), job["metadata"].get("creationTimestamp")
    if gone := job["metadata"].get("deletionTimestamp"):
        return Waiting("Is being deleted; its model's volume stays", since=gone)
    for end, text in (("Complete", "Complete"), ("Failed", "Failed")):
        if holds(job, end):
            return _told(job, end, text)
    if holds(job, "Suspended"):
        return _told(job, "Suspended", "Suspended; finished rounds are kept")
    if not status.get("conditions"):
        return Waiting("Waits for the operator to look at it", since=created)
    for step, text in STEPS.items():
        found = condition(job, step)
        # An unverified method is no hindrance: the aggregator's image decides.
        if found is not None and found["status"] != "True" and found["reason"] != "Unverified":
            return _told(job, step, text)
    if not holds(job, "Running"):
        text = next(text for step, text in STEPS.items() if condition(job, step) is None)
        return Waiting(text, since=status.get("startTime") or created)
    return _round(job)


def _told(job: Object, name: str, text: str) -> Waiting:
    found = condition(job, name)
    assert found is not None
    return Waiting(text, found["reason"], found.get("message") or "", found["lastTransitionTime"])


def _round(job: Object) -> Waiting:
    status = status_of(job)
    begin = status.get("roundStartTime")
    if begin is None:
        return Waiting(
            "Is between two rounds", since=(condition(job, "Running") or {}).get("lastTransitionTime")
        )
    silos = [
        silo for silo in status.get("silos") or () if silo.get("state") in ("Awaited", "Reported", "Failed")
    ]
    awaited = [silo["name"] for silo in silos if silo["state"] == "Awaited"]
    if not awaited:
        return Waiting("Folds what the silos sent, or scores the model", since=begin)
    answered = sum(silo["state"] == "Reported" for silo in silos)
    message = _at_the_deadline(job, len(silos), answered)
    return Waiting(f"Waits for {listed(awaited)}", "", message, begin, status.get("roundDeadline"))


def _at_the_deadline(job: Object, asked: int, answered: int) -> str:
    needed = quorum((job["spec"].get("participation") or {}).get("minSilos"), asked)
    told = f"{answered} of {asked} have answered"
    if answered >= needed:
        return f"{told}, which is enough: at the deadline the round closes without the others."
    return f"{told}, {'all' if needed == asked else needed} are needed: at the deadline the job fails with fewer."


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them, of many only the first."""
    shown = (
        list(names)
        if len(names) <= MOST_NAMES
        else [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    )
    *most, last = shown
    return f"{', '.join(most)} and {last}" if most else last
