"""What a silo says and does about its part in a job: a pure function of what it was told, its Silo and its processes.

The same words as on a cluster, so that the hub and its commands need not know in which kind of place a silo is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from fedsilo.api.agent import SiloAgent
from fedsilo.api.conditions import UNREADABLE, AgentPhase, ConditionType, ObjectionReason
from fedsilo.api.messages import faults_of
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo.api.proposal import propose
from fedsilo.api.silo import Silo
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import DataInvalid, FileDamaged, ManifestInvalid, MethodError, PolicyRefused
from fedsilo.process import version
from fedsilo.silo.budget_figures import SpentOf, SpentSoFar
from fedsilo.silo.configuration import configuration, fingerprint
from fedsilo.silo.decision import sign_decision, states
from fedsilo.silo.installed import installed_image
from fedsilo.silo.objections import Objection
from fedsilo.silo.policy import over_budget
from fedsilo.silo.ruling import Ruling, rule
from fedsilo.wire import SigningKey

GUARD, TRAINER = "guard", "trainer"

MAX_MESSAGE_CHARACTERS = 32768
"""Of a status and of a condition, as meta/v1 allows."""

_REASONS = {
    error.exit_code: error.reason
    for error in (ManifestInvalid, DataInvalid, PolicyRefused, FileDamaged, MethodError)
}
"""Exit code -> reason, of ends that no new start can help."""


@dataclass(frozen=True)
class ProcessState:
    """Guard or trainer as its supervisor sees it.

    :param running: whether there is a process.
    :param exit_code: of the end after which it is not started again; None before that.
    :param crashes: how often it had to be started again.
    :param early: whether it ended with 0 although the job is not over for it.
    """

    running: bool = False
    exit_code: int | None = None
    crashes: int = 0
    early: bool = False

    @property
    def failed(self) -> bool:
        """Whether it has ended for good before it was done."""
        return self.exit_code is not None and (self.exit_code != 0 or self.early)


@dataclass(frozen=True)
class PartState:
    """What a silo says and does about its part in a job.

    :param agent: what guard and trainer are made from; None unless they are to run.
    :param wanted: which of guard and trainer are to run.
    :param status: as the hub is told.
    :param faults: of the silo's own configuration, which the hub is not told.
    """

    agent: SiloAgent | None
    wanted: frozenset[str]
    status: Object
    faults: tuple[str, ...] = ()


def assess(
    record: Object,
    silo: Silo,
    processes: Mapping[str, ProcessState],
    files: Mapping[str, str] | None,
    key: SigningKey,
    now: datetime,
    spent: SpentOf = lambda _: SpentSoFar(),
) -> PartState:
    """The state of a part that the hub still asks for.

    :param record: the SiloAgent as the hub said it, with the status as it was stated last.
    :param silo: as it is now, with the key that it has published.
    :param files: the configuration with which guard and trainer began, as it is on the disk; None while there is none.
    :param key: what decisions are signed with.
    :param spent: dataset -> what is spent of its budget; asked for a dataset that has one.
    """
    suspended = bool(record["spec"].get("suspend"))
    if (ended := _recorded_end(record)) is not None:
        agent = _parse(record)[0] if files is not None else None
        wanted = _after_the_end(ended == ConditionType.FAILED and agent is not None, suspended, processes)
        return PartState(agent if wanted else None, wanted, dict(status_of(record)))
    agent, fault = _parse(record)
    if agent is None:
        return _unreadable(record, fault, now)
    ruling = _ruling(agent, record, silo, files, now, spent)
    facts: dict[str, Any] = {
        "proposal": ruling.proposal.model_dump(mode="json", by_alias=True, exclude_none=True),
        "decision": _decision(record, ruling, key, now),
    }
    begins = not ruling.objections and not suspended
    if began := status_of(record).get("configuration") or (
        fingerprint(files or configuration(agent, silo)) if begins else None
    ):
        facts["configuration"] = began
    if ruling.objections:
        return _refused(record, ruling, facts, now)
    if (end := _end(processes)) is not None:
        wanted = _after_the_end(not end[0], suspended, processes)
        state = _ended(record, ruling, end, facts, now)
        return replace(state, agent=agent if wanted else None, wanted=wanted)
    return _progress(record, agent, ruling, processes, facts, now)


def _parse(record: Object) -> tuple[SiloAgent | None, str]:
    """The agent in types; else all that this version does not understand of it."""
    try:
        return SiloAgent.model_validate({name: record[name] for name in ("metadata", "spec")}), ""
    except ValidationError as error:
        document = f"SiloAgent {record['metadata']['name']}"
        faults = faults_of(error, SiloAgent, file="", document=document)
        return None, " ".join(f"{fault.line()}." for fault in faults)


def _ruling(
    agent: SiloAgent,
    record: Object,
    silo: Silo,
    files: Mapping[str, str] | None,
    now: datetime,
    spent: SpentOf,
) -> Ruling:
    began = status_of(record).get("configuration")
    ruling = rule(
        agent, silo, propose(agent.spec, installed_image(), installed_image()), now, began is not None
    )
    dataset = agent.spec.job.spec.data.dataset
    if not ruling.objections and began is None and silo.spec.policy.budget_of(dataset) is not None:
        text = over_budget(silo, agent.spec.job, spent(dataset))
        full = Objection(ObjectionReason.POLICY_REFUSED, f"Silo {silo.metadata.name}: {text}.")
        return ruling if text is None else replace(ruling, objections=(full,))
    if ruling.objections or began is None:
        return ruling
    text = _changed(agent, silo, files, began)
    return replace(ruling, objections=(Objection(ObjectionReason.TRUST_BROKEN, text),)) if text else ruling


def _changed(agent: SiloAgent, silo: Silo, files: Mapping[str, str] | None, began: str) -> str | None:
    """What is wrong when guard and trainer would read anything else than they began with."""
    if fingerprint(files or configuration(agent, silo)) == began:
        return None
    return (
        f"Silo {silo.metadata.name}: the configuration in the volume of job {agent.spec.job.uid} is not the one with "
        "which guard and trainer began. Put it back from a backup, or ask for the job to be created again."
    )


def _decision(record: Object, ruling: Ruling, key: SigningKey, now: datetime) -> Object:
    stated: Object | None = status_of(record).get("decision")
    if stated is not None and states(stated, ruling, key.verify_key.to_text()):
        return stated
    return sign_decision(ruling, now, key)


def _recorded_end(record: Object) -> str | None:
    ends = (ConditionType.FINISHED, ConditionType.FAILED)
    return next((end for end in ends if holds(record, end)), None)


def _end(processes: Mapping[str, ProcessState]) -> tuple[bool, str, str] | None:
    """How the silo's part ended: whether it succeeded, the reason and a message; None while it has not.

    What a process said of its end stays in the institution: it may quote data.
    """
    failures = [(name, state) for name, state in processes.items() if state.failed]
    if failures:
        name, state = failures[0]
        reason = _REASONS.get(state.exit_code or 0, "BackoffLimitExceeded")
        crashed = f"after {state.crashes} crashes " if state.crashes > 1 else ""
        early = "before the job was over " if state.early else ""
        text = (
            f"The {name} ended {crashed}{early}with exit code {state.exit_code}; the institution has its log."
        )
        return False, str(reason), text
    if processes[GUARD].exit_code == 0 and not processes[TRAINER].running:
        return True, "Finished", "The job is over for this silo: guard and trainer are done."
    return None


def _refused(record: Object, ruling: Ruling, facts: Mapping[str, Any], now: datetime) -> PartState:
    found = ruling.objections
    waits = all(objection.reason == ObjectionReason.APPROVAL_PENDING for objection in found)
    message = " ".join(objection.message for objection in found)
    phase = AgentPhase.APPROVAL_PENDING if waits else AgentPhase.REFUSED
    stated = [
        (ConditionType.ADMITTED, "False", str(found[0].reason), message),
        (ConditionType.READY, "False", "Admitting", "No processes: the silo does not admit the job."),
    ]
    faults = tuple(fault for objection in found for fault in objection.faults)
    return PartState(None, frozenset(), _status(record, phase, message, stated, facts, now), faults)


def _unreadable(record: Object, fault: str, now: datetime) -> PartState:
    text = (
        f"{version()} in the institution cannot read it: {fault} Correct it if it is wrong; if it was made for another "
        "version, run that one."
    )
    stated = [
        (ConditionType.ADMITTED, "Unknown", UNREADABLE, text),
        (ConditionType.READY, "False", "Admitting", "No processes: the silo does not admit the job."),
    ]
    kept = {
        name: value
        for name, value in status_of(record).items()
        if name in ("proposal", "decision", "configuration")
    }
    return PartState(None, frozenset(), _status(record, AgentPhase.PENDING, text, stated, kept, now))


def _after_the_end(failed: bool, suspended: bool, processes: Mapping[str, ProcessState]) -> frozenset[str]:
    """A guard stays after a failure until the job is over: it reports why there is no answer."""
    stays = failed and not suspended and processes[GUARD].exit_code is None
    return frozenset({GUARD}) if stays else frozenset()


def _ended(
    record: Object, ruling: Ruling, end: tuple[bool, str, str], facts: Mapping[str, Any], now: datetime
) -> PartState:
    succeeded, reason, message = end
    phase = AgentPhase.FINISHED if succeeded else AgentPhase.FAILED
    stated = [
        (ConditionType.ADMITTED, "True", "Admitted", ruling.note),
        (ConditionType.READY, "False", reason, message),
        (ConditionType.FINISHED if succeeded else ConditionType.FAILED, "True", reason, message),
    ]
    return PartState(None, frozenset(), _status(record, phase, message, stated, facts, now))


def _progress(
    record: Object,
    agent: SiloAgent,
    ruling: Ruling,
    processes: Mapping[str, ProcessState],
    facts: Mapping[str, Any],
    now: datetime,
) -> PartState:
    """The state of a part that is admitted and goes on."""
    waiting = [name for name, state in processes.items() if not state.running and state.exit_code is None]
    wanted = frozenset(name for name, state in processes.items() if state.exit_code is None)
    message = ""
    if record["spec"].get("suspend"):
        began = "configuration" in facts
        phase, ready, wanted = (
            AgentPhase.SUSPENDED if began else AgentPhase.ADMITTED,
            "Suspended",
            frozenset(),
        )
        message = (
            "No processes: the job is suspended or over."
            if began
            else "No processes yet: the job starts when enough silos have admitted it."
        )
    elif waiting:
        phase, ready = AgentPhase.STARTING, "Starting"
        message = f"Waiting for {' and '.join(f'the {name}' for name in waiting)} to run."
    else:
        phase, ready, message = AgentPhase.RUNNING, "Running", "Guard and trainer run."
    stated = [
        (ConditionType.ADMITTED, "True", "Admitted", ruling.note),
        (ConditionType.READY, "True" if phase == AgentPhase.RUNNING else "False", ready, message),
    ]
    summary = ruling.note if phase == AgentPhase.ADMITTED else message
    return PartState(agent, wanted, _status(record, phase, summary, stated, facts, now))


def _status(
    record: Object,
    phase: AgentPhase,
    message: str,
    stated: Sequence[tuple[str, str, str, str]],
    facts: Mapping[str, Any],
    now: datetime,
) -> Object:
    return {
        "phase": str(phase),
        "message": message[:MAX_MESSAGE_CHARACTERS],
        "conditions": [_condition(record, *one, now) for one in stated],
        **facts,
    }


def _condition(record: Object, kind: str, status: str, reason: str, message: str, now: datetime) -> Object:
    """A condition as meta/v1 has it: `lastTransitionTime` moves only when its status does."""
    before = condition(record, kind)
    unchanged = before is not None and before["status"] == status
    return {
        "type": str(kind),
        "status": status,
        "reason": reason,
        "message": message[:MAX_MESSAGE_CHARACTERS],
        "lastTransitionTime": before["lastTransitionTime"] if before and unchanged else timestamp(now),
    }
