"""The operator's half of a job's status: conditions, the phase that sums them up, the silos, and Events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from fedsilo.api.conditions import AgentPhase, ConditionType, JobPhase
from fedsilo.api.diagnosis import Condition, as_status
from fedsilo.api.observed import Object, condition, status_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.job.participants import phase_and_message
from fedsilo_operator.job.state import JobState
from fedsilo_operator.job.summaries import SUMMARIES, summaries
from fedsilo_operator.objects import Ref, satisfies
from fedsilo_operator.reasons import HARMLESS_REASONS, PROGRESS_REASONS, WARNING_REASONS, Reason

ORDER = tuple(ConditionType)
"""Conditions in the order in which a job comes to them."""

MAX_MESSAGE_CHARACTERS, MAX_ALL_MESSAGES_CHARACTERS = 1024, 200_000
"""Characters of a silo's message, and of those of all silos: the API server takes no object above 1.5 MB, and managed
fields and the aggregator's half need room. The agent's own status has the full text."""

_EXPECTED_REASONS = frozenset((Reason.RESUMED, Reason.KEY_PENDING)) | HARMLESS_REASONS
"""Reasons of a condition that is False, worth an Event, that nobody needs to act upon."""

Entries = list[dict[str, Any]]
"""The operator's part of `status.silos`; the aggregator's fields stand beside it in the same entries."""


def document(
    job: Object,
    found: Iterable[Condition],
    silos: Entries,
    *,
    now: datetime,
    started: datetime | None = None,
    ended: datetime | None = None,
    gang: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The operator's part of the status.

    :param job: as observed.
    :param started: when it started, if it has; an earlier time stands.
    :param ended: when it came to its end, if it has.
    :param gang: how all agents come to run together, while they do not.
    """
    before, stated = status_of(job), tuple(found)
    ordered = sorted((*stated, *summaries(stated)), key=lambda one: ORDER.index(one.type))
    conditions = as_status(ordered, job, now)
    content = {
        "phase": str(phase(conditions)),
        "conditions": conditions,
        "silos": silos,
        "startTime": before.get("startTime") or (started and timestamp(started)),
        "completionTime": ended and timestamp(ended),
        "gang": gang,
    }
    return _without_empty(job, content)


def unchanged_status(job: Object, silos: Entries) -> dict[str, Any]:
    """The operator's part as it was last written, unchanged except for the silos."""
    names = ("phase", "conditions", "startTime", "completionTime")
    return _without_empty(job, {name: status_of(job).get(name) for name in names} | {"silos": silos})


def _without_empty(job: Object, content: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty: an API server may keep it or not, and it would be written again and again."""
    generation = {"observedGeneration": job["metadata"].get("generation", 0)}
    return generation | {name: value for name, value in content.items() if value}


def phase(conditions: Iterable[Mapping[str, Any]]) -> JobPhase:
    """The phase that sums up the conditions, for people; nothing is decided by it."""
    status = {item["type"]: item["status"] for item in conditions}
    for name in (
        ConditionType.COMPLETE,
        ConditionType.FAILED,
        ConditionType.SUSPENDED,
        ConditionType.RUNNING,
    ):
        if status.get(name) == "True":
            return JobPhase(name)
    if status.get(ConditionType.ADMITTED) == "True":
        return JobPhase.STARTING
    accepted = status.get(ConditionType.ACCEPTED, "False") != "False"
    return JobPhase.ADMITTING if accepted else JobPhase.PENDING


def silos(state: JobState) -> Entries:
    """The silos by name; after the start also those that were in question and do not take part."""
    entries: dict[str, dict[str, Any]] = {}
    for silo in state.participants:
        entries.setdefault(silo.ref.name, _entry(silo.ref, silo.phase, silo.message))
    if state.started:
        left_out = [_entry(silo.ref, silo.phase, silo.message) for silo in state.left_out]
        for entry in (*left_out, *_earlier_entries(state.observed)):
            entries.setdefault(entry["name"], entry | {"phase": str(AgentPhase.LEFT_OUT)})
    return _bounded_entries(entries.values())


def refreshed_entries(state: JobState) -> Entries:
    """The silos as they were last written, updated from those agents that still exist."""
    entries = {entry["name"]: entry for entry in _earlier_entries(state.observed)}
    for ref, agent in state.agents.items():
        if entries.get(ref.name, {}).get("phase") != AgentPhase.LEFT_OUT:
            entries[ref.name] = _entry(ref, *phase_and_message(agent))
    return _bounded_entries(entries.values())


def _bounded_entries(entries: Collection[dict[str, Any]]) -> Entries:
    longest = min(MAX_MESSAGE_CHARACTERS, MAX_ALL_MESSAGES_CHARACTERS // max(1, len(entries)))
    return [entry | {"message": entry["message"][:longest]} for entry in entries]


def to_write(job: Object, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """The status, or None when the job already has it, with no further field of the operator's."""
    observed = status_of(job)
    types = {item["type"] for item in wanted.get("conditions", ())}
    names = {item["name"] for item in wanted.get("silos", ())}
    surplus = any(item["type"] not in types for item in observed.get("conditions") or ()) or any(
        entry["name"] not in names for entry in _earlier_entries(job)
    )
    surplus = surplus or observed.get("gang") != wanted.get("gang")
    return None if satisfies(observed, wanted) and not surplus else wanted


def transition_events(job: Object, wanted: Mapping[str, Any]) -> tuple[Event, ...]:
    """Conditions that have another status than before, or another reason for the same.

    Objections come silo by silo under one reason, so there every change of the message counts.
    """
    return tuple(_news(job, wanted))


def _news(job: Object, wanted: Mapping[str, Any]) -> Iterator[Event]:
    conditions = wanted.get("conditions", ())
    failed = [item["reason"] for item in conditions if item["type"] == ConditionType.FAILED]
    for item in conditions:
        if item["type"] in SUMMARIES or (item["type"] == ConditionType.ACCEPTED and item["reason"] in failed):
            continue
        before = condition(job, item["type"])
        admission = item["type"] == ConditionType.ADMITTED
        names = ("status", "reason", "message") if admission else ("status", "reason")
        changed = before is None or any(before[name] != item[name] for name in names)
        if changed and _is_news(item["type"], item["status"], item["reason"]):
            bad = item["status"] == ("True" if item["type"] == ConditionType.FAILED else "False")
            warning = (bad and item["reason"] not in _EXPECTED_REASONS) or item["reason"] in WARNING_REASONS
            yield Event(job, "Warning" if warning else "Normal", item["reason"], item["message"])


def _is_news(name: str, status: str, reason: str) -> bool:
    """Waiting is no news; nor that all agents run, which `Running` reports next."""
    if name == ConditionType.SUSPENDED:
        return reason in (Reason.SUSPENDED, Reason.RESUMED)
    return reason not in PROGRESS_REASONS and (name, status) != (ConditionType.SILOS_READY, "True")


def _entry(ref: Ref, phase: str, message: str) -> dict[str, Any]:
    return {"name": ref.name, "namespace": ref.namespace, "phase": phase, "message": message}


def _earlier_entries(job: Object) -> Entries:
    """The operator's earlier entries of the silos: those with a namespace."""
    entries = status_of(job).get("silos") or ()
    names = ("name", "namespace", "phase", "message")
    return [{name: entry.get(name, "") for name in names} for entry in entries if "namespace" in entry]
