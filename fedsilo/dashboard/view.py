"""The dashboard's documents are pure functions of a snapshot.

No document contains the current time, only the time since which something holds. So a document changes when something
happens and not as time passes, and a page that has the current one needs no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedsilo.api.conditions import AgentPhase, JobPhase, SiloState
from fedsilo.api.figures import finite_figures, main_name
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.scores import ScoresStatus
from fedsilo.dashboard.contract import contract
from fedsilo.dashboard.snapshot import JobsSnapshot, Receipt
from fedsilo.dashboard.waiting import waiting
from fedsilo.explanation.explain import has_ended

Document = dict[str, Any]

MAX_JOBS = 200
"""Jobs on the overview, unfinished ones first; it also states how many there are."""

MAX_EVENTS = 50
MAX_RECEIPTS = 500
MAX_SPARKS = 30
"""Points of a job's small curve."""

MAX_MARKS = 60
"""Silos of one job that the overview shows one by one."""

UNREADABLE_STATE = "Unreadable"
"""State of a job whose status is not one, for whatever wrote it."""

MALFORMED_DOCUMENT_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a document raises that has other fields, or values of other types, than it should."""

TONES: Mapping[str, str] = {
    JobPhase.COMPLETE: "good",
    SiloState.REPORTED: "good",
    SiloState.FINISHED: "good",
    JobPhase.RUNNING: "busy",
    SiloState.AWAITED: "wait",
    AgentPhase.APPROVAL_PENDING: "wait",
    JobPhase.FAILED: "bad",
    AgentPhase.REFUSED: "bad",
}
"""State -> the tone in which it is shown; any other is neutral."""


SEVERITY_TONES: Mapping[str, str] = {"error": "bad", "warning": "wait"}
"""Severity of a finding -> its tone."""


def overview(snapshot: JobsSnapshot) -> Document:
    """All jobs, the silos that take part in them, and the latest events."""
    return _unless_malformed(_overview, snapshot)


def _unless_malformed(view: Callable[[JobsSnapshot], Document], snapshot: JobsSnapshot) -> Document:
    """The view, in which a job whose status cannot be read is shown without it: it hides no other."""
    try:
        return view(snapshot)
    except MALFORMED_DOCUMENT_ERRORS:
        jobs = [
            job if _is_readable(job) else {**job, "status": {"phase": UNREADABLE_STATE}}
            for job in snapshot.jobs
        ]
        return view(replace(snapshot, jobs=jobs))


def _is_readable(job: Object) -> bool:
    try:
        _overview(JobsSnapshot("machine", [job]))
        _page(JobsSnapshot("machine", [job]))
    except MALFORMED_DOCUMENT_ERRORS:
        return False
    return True


def _overview(snapshot: JobsSnapshot) -> Document:
    jobs = sorted(snapshot.jobs, key=_creation_key, reverse=True)
    ordered = [job for job in jobs if not has_ended(job)] + [job for job in jobs if has_ended(job)]
    return {
        "place": snapshot.place,
        "count": len(jobs),
        "jobs": [_summary(job) for job in ordered[:MAX_JOBS]],
        "silos": _silo_rows(snapshot),
        "events": _events(snapshot.of(snapshot.jobs)),
    }


def page(snapshot: JobsSnapshot, namespace: str, name: str) -> Document | None:
    """Everything about one job; None when there is no such job."""
    found = snapshot.job(namespace, name)
    return _unless_malformed(_page, found) if found.jobs else None


def _page(found: JobsSnapshot) -> Document:
    (job,) = found.jobs
    status = status_of(job)
    return {
        "place": found.place,
        **_summary(job),
        "training": finite_figures(status.get("training") or {}),
        "model": job["spec"]["model"]["name"],
        "parameters": status.get("parameters"),
        "quorum": (job["spec"].get("participation") or {}).get("minSilos"),
        "curves": _curves(status.get("curve") or ()),
        "scores": _scores(status),
        "classes": _classes(job),
        "findings": [
            {**found, "tone": SEVERITY_TONES.get(found["severity"], "none")}
            for found in status.get("findings") or ()
        ],
        "best": status.get("best"),
        "members": _members(job, found.agents),
        "contract": contract(job["spec"], status.get("parameters")),
        "refusals": [{"code": code, "count": count} for code, count in sorted(_refused_counts(job).items())],
        "receipts": _receipts(job, found.receipts.get(uid_of(job))),
        "conditions": [
            {"type": item["type"], "status": item["status"], **_details(item)}
            for item in status.get("conditions") or ()
        ],
        "events": _events(found),
    }


def _summary(job: Object) -> Document:
    status, metadata = status_of(job), job["metadata"]
    state = str(
        JobPhase.TERMINATING if metadata.get("deletionTimestamp") else status.get("phase") or JobPhase.PENDING
    )
    silos = _entries(job)
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "state": state,
        "tone": TONES.get(state, "none"),
        "method": job["spec"]["method"]["name"],
        "created": metadata.get("creationTimestamp"),
        "started": status.get("startTime"),
        "ended": status.get("completionTime"),
        "round": status.get("round") or 0,
        "rounds": status.get("rounds"),
        "step": None if has_ended(job) else status.get("step"),
        "metrics": finite_figures(status.get("metrics") or {}),
        "main": main_name(status),
        "spark": _spark(status),
        "waiting": waiting(job),
        "marks": [_mark(silo) for silo in silos[:MAX_MARKS]],
        "silos": len(silos),
        "bytes": sum(silo.get("bytesSent") or 0 for silo in silos),
        "refused": sum(_refused_counts(job).values()),
    }


def _spark(status: Mapping[str, Any]) -> Document | None:
    """The one curve that stands for the job: that of its main score, else of any, else of a training figure."""
    main = main_name(status) or "accuracy"
    curves = _curves(status.get("curve") or ())
    named = sorted(curves, key=lambda curve: (curve["name"] != main, curve["group"] != "score"))
    if not named:
        return None
    whole: list[tuple[int, float]] = named[0]["points"]
    stride = -(-len(whole) // MAX_SPARKS)
    return named[0] | {"points": whole[(len(whole) - 1) % stride :: stride]}


def _curves(points: Iterable[Object]) -> list[Document]:
    """Name, group and (round, value) points of each curve."""
    found: defaultdict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for point in points:
        for group, figures in (("score", point.get("metrics")), ("training", point.get("training"))):
            for name, value in finite_figures(figures or {}).items():
                found[group, name].append((point["round"], value))
    return [{"name": name, "group": group, "points": found[group, name]} for group, name in sorted(found)]


def _scores(status: Mapping[str, Any]) -> Document | None:
    """What the latest scores are of, and each silo's own where all permit it."""
    scores = ScoresStatus.of_status(status)
    if scores is None:
        return None
    return {
        "round": scores.round,
        "basis": scores.basis,
        "whole": scores.is_whole,
        "refusal": scores.refusal,
        "names": list(scores.names(status)),
        "rows": [
            {"name": name, "examples": examples, "figures": figures}
            for name, examples, figures in scores.rows(status)
        ],
    }


def _classes(job: Object) -> list[Document]:
    """Name and figures of each class, in the last evaluation."""
    names = (job["spec"].get("data") or {}).get("classes")
    found = status_of(job).get("classes") or ()
    return [
        {
            "name": entry.get("name")
            or (names[label] if isinstance(names, list) and label < len(names) else str(label)),
            "figures": finite_figures(entry.get("figures") or {}),
            "answers": _row(entry, len(found)),
        }
        for label, entry in enumerate(found)
    ]


def _row(entry: Mapping[str, Any], classes: int) -> list[int]:
    """A class's row of the confusion matrix; empty where it has none, or not one number for each class."""
    row = entry.get("answers") or []
    return row if len(row) == classes else []


def _entries(job: Object) -> Sequence[Mapping[str, Any]]:
    """The silos as the status has them, or as the job names them where it has none yet."""
    listed = status_of(job).get("silos")
    return listed or (job["spec"].get("silos") or {}).get("refs") or ()


def _state(silo: Mapping[str, Any]) -> str:
    """State of a silo in one word: in the round while its agent runs, else that of its agent."""
    phase = silo.get("phase") or ""
    runs = phase in ("", AgentPhase.RUNNING, AgentPhase.FINISHED)
    return str(silo.get("state") or phase or AgentPhase.PENDING) if runs else str(phase)


def _mark(silo: Mapping[str, Any]) -> Document:
    state = _state(silo)
    return {"name": silo["name"], "state": state, "tone": TONES.get(state, "none")}


def _members(job: Object, agents: Iterable[Object]) -> list[Document]:
    by_silo = {
        (agent["spec"]["silo"].get("namespace"), agent["spec"]["silo"]["name"]): agent for agent in agents
    }
    rows = []
    for silo in _entries(job):
        namespace = silo.get("namespace")
        agent = by_silo.get((namespace, silo["name"]))
        rows.append(
            {
                **_mark(silo),
                "namespace": namespace,
                "agent": silo.get("phase"),
                "since": _state_start_time(job, silo, agent),
                "lastRound": silo.get("lastRound"),
                "samples": silo.get("samples"),
                "bytes": silo.get("bytesSent"),
                "kept": silo.get("kept"),
                "personalAccuracy": silo.get("personalAccuracy"),
                "message": silo.get("message") or "",
            }
        )
    return rows


def _state_start_time(job: Object, silo: Mapping[str, Any], agent: Object | None) -> str | None:
    """Since when a silo is awaited, or its agent is in its state."""
    if _state(silo) == SiloState.AWAITED:
        return status_of(job).get("roundStartTime")
    if _state(silo) != silo.get("phase") or agent is None:
        return None
    return max(
        (item["lastTransitionTime"] for item in status_of(agent).get("conditions") or ()), default=None
    )


def _silo_rows(snapshot: JobsSnapshot) -> list[Document]:
    """The silos of all jobs: how many jobs each is in, which await it since when, and the bytes that it sent."""
    found: dict[tuple[str, str], Document] = {}
    for job in snapshot.jobs:
        place = {key: job["metadata"][key] for key in ("namespace", "name")}
        for silo in _entries(job):
            ref = (silo.get("namespace") or "default", silo["name"])
            row = found.setdefault(
                ref, {"namespace": ref[0], "name": ref[1], "jobs": 0, "active": 0, "bytes": 0, "awaited": []}
            )
            row["jobs"] += 1
            row["active"] += not has_ended(job)
            row["bytes"] += silo.get("bytesSent") or 0
            if _state(silo) == SiloState.AWAITED and not has_ended(job):
                row["awaited"].append({**place, "since": status_of(job).get("roundStartTime")})
    return [found[ref] for ref in sorted(found)]


def _events(snapshot: JobsSnapshot) -> list[Document]:
    """The latest events, newest first."""
    rows = [
        {
            "type": event.get("type") or "Normal",
            "reason": event.get("reason") or "",
            "message": event.get("message") or "",
            "count": event.get("count") or 1,
            "last": event.get("lastTimestamp")
            or event.get("eventTime")
            or event["metadata"].get("creationTimestamp"),
            "about": {key: event["involvedObject"].get(key) or "" for key in ("kind", "namespace", "name")},
        }
        for event in snapshot.events
    ]
    return sorted(rows, key=lambda row: row["last"] or "", reverse=True)[:MAX_EVENTS]


def _receipts(job: Object, receipts: Sequence[Receipt] | None) -> Document:
    """Digests by which job and silos can check one another: all of them, or those that the status has."""
    model = status_of(job).get("model")
    if receipts is None:
        known = [
            {"round": silo["lastRound"], "phase": "", "silo": silo["name"], "digest": silo["update"]}
            for silo in _entries(job)
            if silo.get("update")
        ]
        return {"complete": False, "model": model, "count": len(known), "updates": known}
    latest = [receipt._asdict() for receipt in reversed(receipts[-MAX_RECEIPTS:])]
    return {"complete": True, "model": model, "count": len(receipts), "updates": latest}


def _details(item: Mapping[str, Any]) -> Document:
    return {
        "reason": item["reason"],
        "message": item.get("message") or "",
        "since": item["lastTransitionTime"],
    }


def _refused_counts(job: Object) -> Mapping[str, int]:
    return status_of(job).get("refused") or {}


def _creation_key(job: Object) -> tuple[str, str, str]:
    metadata = job["metadata"]
    return metadata.get("creationTimestamp") or "", metadata["namespace"], metadata["name"]
